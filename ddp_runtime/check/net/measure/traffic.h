// SPDX-License-Identifier: Apache-2.0
// Byte counters of a node's network devices. They show which devices a stage of the check actually
// used, regardless of what the libraries report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ddp::check {

// Bytes received and sent since boot, by device: "eth0", "mlx5_0:1".
using Traffic = std::map<std::string, std::uint64_t>;

// Counters of all interfaces, loopback included, and RDMA ports below `sys`, normally "/sys". At
// most 1024.
Traffic read_traffic(const std::filesystem::path& sys);

// The devices that carried the traffic between two readings: at least 1 MiB, and at least a tenth
// of the busiest device's bytes; busiest first. Empty if the data never left the node's memory.
std::vector<std::string> carriers(const Traffic& before, const Traffic& after);

// Whether the device is an RDMA port, not a network interface.
bool is_rdma_port(const std::string& device);

// The MPI library's transport components, as found in the modules loaded into memory: "pml ob1, btl
// self tcp vader". The library unloads those it does not use. Empty if there are none.
std::string modules_in(const std::vector<std::string>& loaded_files);
// Paths of the shared libraries that this process has loaded.
std::vector<std::string> loaded_files();

}  // namespace ddp::check

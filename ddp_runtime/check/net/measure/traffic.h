// How many bytes each network device of a node has carried, from which one sees which of them a
// stage of the check really used, whatever the libraries say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ddp::check {

// Bytes received and sent since the machine started, by device: "eth0", "mlx5_0:1".
using Traffic = std::map<std::string, std::uint64_t>;

// Of all interfaces, loopback included, and RDMA ports below `sys`, normally "/sys". At most 1024.
Traffic read_traffic(const std::filesystem::path& sys);

// The devices that carried what went on in between: 1 MiB at least, and a tenth of what the busiest
// one carried; busiest first. None if the data never left the node's memory.
std::vector<std::string> carriers(const Traffic& before, const Traffic& after);

// Whether it is an RDMA port rather than an interface.
bool is_rdma_port(const std::string& device);

// The MPI library's parts that move data, as far as its modules in memory tell: "pml ob1, btl self
// tcp vader". It unloads those it does not use. Empty without any.
std::string modules_in(const std::vector<std::string>& loaded_files);
// Paths of the shared libraries that this process has loaded.
std::vector<std::string> loaded_files();

}  // namespace ddp::check

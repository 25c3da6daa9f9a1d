// SPDX-License-Identifier: Apache-2.0
// The GPUs of a node and their places in its PCI tree, from sysfs and /proc alone: no CUDA, no
// driver library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fabric {

// The bridges from the root complex down to a device, the device itself last: {"pci0000:15",
// "0000:15:01.0", .., "0000:1b:00.0"}. Empty if unknown, as for devices that a hypervisor passes
// through individually.
using PciPath = std::vector<std::string>;

// Reads the link /sys/bus/pci/devices/<address>.
PciPath read_pci_path(const std::filesystem::path& sys, std::string_view bus_address);

// Returns the number of bridges that two devices share; 0 if their paths meet only in a CPU, or not
// at all. Devices that share 2 or more are below one root port, so traffic between them need not
// cross a CPU.
std::size_t shared_bridges(const PciPath& a, const PciPath& b) noexcept;

struct Gpu {
  std::string bus_address;  // "0000:1b:00.0"
  std::string driver;       // "nvidia", "amdgpu"
  std::string uuid;         // "GPU-..", NVIDIA only; empty if unknown
  std::optional<int> numa_node;
  PciPath path;
  std::string local_cpus = {};  // "48-63,112-127", in sysfs format; empty if unknown
  std::string model = {};       // "NVIDIA GB200", NVIDIA only; empty if unknown
};

// Returns at most 256 GPUs in the order of their bus addresses, which is CUDA's order with
// CUDA_DEVICE_ORDER=PCI_BUS_ID. A GPU without its vendor's driver is not listed: nothing can
// compute on it.
std::vector<Gpu> read_gpus(const std::filesystem::path& root);

}  // namespace ddp::fabric

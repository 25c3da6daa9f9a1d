// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/node/gpu.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "base/text_file.h"
#include "spank_plugin/fabric/files/attribute.h"

namespace ddp::fabric {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxGpus = 256;
constexpr std::size_t kDeepestPath = 32;

// True for "0000:1b:00.0"; the directory of a driver also contains bind, new_id and module.
bool is_bus_address(std::string_view name) {
  return name.size() >= 12 && name.size() <= 16 && name[name.size() - 2] == '.' &&
         name[name.size() - 5] == ':' && name[name.size() - 8] == ':';
}

// PCI base classes: 0x03 display (including 3D controllers), 0x12 processing accelerator. NVIDIA's
// driver is also bound to switches, which are bridges.
bool is_gpu_class(std::int64_t pci_class) {
  const std::int64_t base = pci_class >> 16;
  return base == 0x03 || base == 0x12;
}

// Reads the attributes of a GPU from NVIDIA's driver.
void read_information(Gpu& gpu, const fs::path& root) {
  constexpr std::size_t kMax = 4096;
  const fs::path file = root / "proc/driver/nvidia/gpus" / gpu.bus_address / "information";
  const std::string text = read_text(file, kMax).value_or("");
  for (const auto line : split(text, '\n', 64)) {
    for (const auto& [key, value] :
         {std::pair<std::string_view, std::string*>{"GPU UUID:", &gpu.uuid},
          {"Model:", &gpu.model}}) {
      if (line.starts_with(key)) *value = trimmed(line.substr(key.size()));
    }
  }
}

}  // namespace

PciPath read_pci_path(const fs::path& sys, std::string_view bus_address) {
  std::error_code error;
  const auto target = fs::read_symlink(sys / "bus/pci/devices" / bus_address, error);
  if (error) return {};
  PciPath path;
  bool below_devices = false;
  for (const auto& part : target) {
    if (path.size() == kDeepestPath) return {};
    if (below_devices) path.push_back(part.string());
    below_devices = below_devices || part == "devices";
  }
  return path;
}

std::size_t shared_bridges(const PciPath& a, const PciPath& b) noexcept {
  const auto [end, ignored] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end - a.begin());
}

std::vector<Gpu> read_gpus(const fs::path& root) {
  constexpr std::array<std::string_view, 2> kDrivers{"nvidia", "amdgpu"};
  const fs::path sys = root / "sys";
  std::vector<Gpu> gpus;
  for (const auto driver : kDrivers) {
    for (const auto& name : list_names(sys / "bus/pci/drivers" / driver, kMaxGpus)) {
      if (!is_bus_address(name)) continue;
      const fs::path device = sys / "bus/pci/devices" / name;
      if (!is_gpu_class(read_integer(device / "class").value_or(0))) continue;
      Gpu gpu{name, std::string(driver), {}, {}, read_pci_path(sys, name)};
      read_information(gpu, root);
      gpu.local_cpus = read_attribute(device / "local_cpulist").value_or("");
      const auto node = read_integer(device / "numa_node");
      if (node && *node >= 0 && *node < 65536) gpu.numa_node = static_cast<int>(*node);
      gpus.push_back(std::move(gpu));
    }
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.bus_address < b.bus_address; });
  return gpus;
}

}  // namespace ddp::fabric

// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/node/node.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text_file.h"
#include "spank_plugin/fabric/files/attribute.h"
#include "spank_plugin/fabric/files/text.h"

namespace ddp::fabric {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfiguration = 65'536;  // bytes
constexpr std::size_t kMaxRouting = 1'048'576;
constexpr std::size_t kMaxDeviceFiles = 256;
constexpr std::size_t kMaxChannels = 4096;  // the driver has half as many

void append_file(std::vector<Assignment>& assignments, const fs::path& file,
                 const std::string& shown_as) {
  const auto text = read_text(file, kMaxConfiguration);
  if (!text) return;
  auto found = parse_assignments(*text, shown_as);
  std::move(found.begin(), found.end(), std::back_inserter(assignments));
}

// NCCL reads the user's file before the system's and keeps values that are already set. Since 2.23
// the file named by NCCL_CONF_FILE replaces ~/.nccl.conf; older versions ignore that variable.
std::vector<Assignment> read_nccl_files(const Roots& roots) {
  std::vector<Assignment> found;
  if (roots.nccl_conf_file.is_absolute()) {
    append_file(found, roots.nccl_conf_file, "NCCL_CONF_FILE");
  }
  if (!roots.home.empty()) append_file(found, roots.home / ".nccl.conf", "~/.nccl.conf");
  append_file(found, roots.root / "etc/nccl.conf", "/etc/nccl.conf");
  return found;
}

// Open MPI's files name parameters without the prefix OMPI_MCA_ of the environment.
std::vector<Assignment> read_open_mpi_files(const Roots& roots) {
  std::vector<Assignment> found;
  if (!roots.home.empty()) {
    append_file(found, roots.home / ".openmpi/mca-params.conf", "~/.openmpi/mca-params.conf");
  }
  append_file(found, roots.root / "etc/openmpi/openmpi-mca-params.conf",
              "/etc/openmpi/openmpi-mca-params.conf");
  for (auto& assignment : found) assignment.name.insert(0, "OMPI_MCA_");
  return found;
}

std::vector<Route> read_routes(const fs::path& proc) {
  auto routes = parse_ipv4_routes(read_text(proc / "net/route", kMaxRouting).value_or(""));
  auto v6 = parse_ipv6_routes(read_text(proc / "net/ipv6_route", kMaxRouting).value_or(""));
  std::move(v6.begin(), v6.end(), std::back_inserter(routes));
  return routes;
}

// True if this process can open a uverbs device file, as libibverbs does. A container has these
// files only if they were mounted into it.
bool can_open_verbs(const fs::path& root) {
  const fs::path directory = root / "dev/infiniband";
  const auto names = list_names(directory, kMaxDeviceFiles);
  return std::any_of(names.begin(), names.end(), [&directory](const std::string& name) {
    return name.starts_with("uverbs") && access((directory / name).c_str(), R_OK | W_OK) == 0;
  });
}

// CUDA exports memory to GPUs of other nodes through a channel that it may open.
void read_imex_channels(Node& node, const fs::path& root) {
  const fs::path directory = root / "dev/nvidia-caps-imex-channels";
  node.imex_channels = list_names(directory, kMaxChannels);
  std::erase_if(node.imex_channels, [](const auto& name) { return !is_device_name(name); });
  node.can_use_imex = std::any_of(node.imex_channels.begin(), node.imex_channels.end(),
                                  [&directory](const std::string& name) {
                                    return access((directory / name).c_str(), R_OK | W_OK) == 0;
                                  });
}

// Finds the topology files of presets that exist on this node.
std::vector<std::string> find_topology_files(const Node& node, const fs::path& root) {
  std::vector<std::string> found;
  auto presets = built_in_presets();
  presets.insert(presets.end(), node.site.presets.begin(), node.site.presets.end());
  for (const auto& preset : presets) {
    for (const auto& [name, value] : preset.values) {
      if (name != "NCCL_TOPO_FILE" || !value.starts_with('/')) continue;
      std::error_code error;
      if (fs::is_regular_file(root / value.substr(1), error)) found.push_back(value);
    }
  }
  return found;
}

// Interface names appear in variables, lists and messages, but the kernel allows control
// characters, commas and bytes beyond ASCII in them.
void set_aside_unlisted(Node& node) {
  for (auto& found : node.interfaces) {
    const bool is_network = found.running && found.kind != InterfaceKind::loopback;
    if (is_network && !is_interface_name(found.name)) node.unlisted.push_back(found);
  }
  std::erase_if(node.interfaces, [](const auto& found) { return !is_interface_name(found.name); });
}

}  // namespace

const NetworkInterface* Node::interface(std::string_view name) const noexcept {
  const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                  [name](const auto& entry) { return entry.name == name; });
  return found == interfaces.end() ? nullptr : &*found;
}

Node read_node(const Roots& roots, std::vector<InterfaceAddress> addresses,
               std::optional<Site> site) {
  Node node;
  node.interfaces = read_network_interfaces(roots.root / "sys");
  set_aside_unlisted(node);
  node.addresses = std::move(addresses);
  node.routes = read_routes(roots.root / "proc");
  node.ports = read_infiniband_ports(roots.root / "sys");
  std::erase_if(node.ports, [](const auto& found) { return !is_device_name(found.device); });
  for (const auto& port : node.ports) {
    node.port_paths.push_back(read_pci_path(roots.root / "sys", port.bus_address));
  }
  node.can_use_verbs = can_open_verbs(roots.root);
  node.slingshot = list_names(roots.root / "sys/class/cxi", kMaxDeviceFiles);
  std::erase_if(node.slingshot, [](const auto& name) { return !is_device_name(name); });
  node.gpus = read_gpus(roots.root);
  node.numa_distances = read_numa_distances(roots.root / "sys");
  read_imex_channels(node, roots.root);
  node.nccl_files = read_nccl_files(roots);
  node.open_mpi_files = read_open_mpi_files(roots);
  if (!site) site = read_site(roots.root, SiteOwner::any);
  node.site = std::move(site->file);
  node.problems = std::move(site->problems);
  node.topology_files = find_topology_files(node, roots.root);
  return node;
}

}  // namespace ddp::fabric

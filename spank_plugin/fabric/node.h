// Everything the fabric plan wants to know of a node, read once: interfaces, routes, RDMA ports,
// GPUs and the configuration files that NCCL, Open MPI and the site have there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/fabric/assignments.h"
#include "spank_plugin/fabric/gpu.h"
#include "spank_plugin/fabric/infiniband_port.h"
#include "spank_plugin/fabric/ip_address.h"
#include "spank_plugin/fabric/network_interface.h"
#include "spank_plugin/fabric/numa.h"
#include "spank_plugin/fabric/route.h"
#include "spank_plugin/fabric/site.h"

namespace ddp::fabric {

// Where a machine's files are. Tests point them to a directory.
struct Roots {
  std::filesystem::path root = "/";      // of sys/, proc/, etc/, opt/
  std::filesystem::path home;            // of .nccl.conf; empty: there is none
  std::filesystem::path nccl_conf_file;  // what NCCL_CONF_FILE says; empty if nothing
};

struct Node {
  std::vector<NetworkInterface> interfaces;
  std::vector<InterfaceAddress> addresses;  // in the order of getifaddrs(3): NCCL goes by it
  std::vector<Route> routes;
  std::vector<InfinibandPort> ports;
  std::vector<PciPath> port_paths;     // of each of them
  bool can_use_verbs = true;           // this process may open a device file of theirs
  std::vector<std::string> slingshot;  // "cxi0", ..: no RDMA ports to NCCL, but fast ones
  std::vector<Gpu> gpus;               // in the order of their PCI addresses
  NumaDistances numa_distances;
  std::vector<std::string> imex_channels;  // "channel0", ..: device files for NVLink between nodes
  bool can_use_imex = false;               // this process may open one of them
  std::vector<Assignment> nccl_files;      // the first of a name is the one that NCCL takes
  std::vector<Assignment> open_mpi_files;  // OMPI_MCA_*, likewise
  SiteFile site;
  std::vector<std::string> topology_files;  // NCCL_TOPO_FILE of presets, those that exist here
  std::vector<std::string> problems;        // one sentence each: a file that is not used, and why

  const NetworkInterface* interface(std::string_view name) const noexcept;
};

// Reads files only: no socket, no name service. All reads are bounded, and what is missing is
// absent. To be called as the user whose home it is: a home may be a link to anything, or hang.
// `addresses`: what local_addresses() (host/local_addresses.h) says, or a test's own list.
// `site`: the site's file if it has been read already, as before a container hid it; otherwise the
// one below the root is read.
// Throws std::bad_alloc only.
Node read_node(const Roots& roots, std::vector<InterfaceAddress> addresses,
               std::optional<Site> site = std::nullopt);

}  // namespace ddp::fabric

// SPDX-License-Identifier: Apache-2.0
// The inputs of the fabric plan from one node, read once: interfaces, routes, RDMA ports, GPUs and
// the configuration files of NCCL, Open MPI and the site.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/fabric/files/assignments.h"
#include "spank_plugin/fabric/files/ip_address.h"
#include "spank_plugin/fabric/node/gpu.h"
#include "spank_plugin/fabric/node/infiniband_port.h"
#include "spank_plugin/fabric/node/network_interface.h"
#include "spank_plugin/fabric/node/numa.h"
#include "spank_plugin/fabric/node/route.h"
#include "spank_plugin/fabric/site/site.h"

namespace ddp::fabric {

// The locations of a machine's files. Tests point them to a directory.
struct Roots {
  std::filesystem::path root = "/";      // the parent of sys/, proc/, etc/, opt/
  std::filesystem::path home;            // the directory of .nccl.conf; empty if there is none
  std::filesystem::path nccl_conf_file;  // the value of NCCL_CONF_FILE; empty if unset
};

struct Node {
  std::vector<NetworkInterface> interfaces;
  // Running interfaces with a name that lists of interfaces cannot contain, such as "a,b".
  std::vector<NetworkInterface> unlisted;
  std::vector<InterfaceAddress> addresses;  // in the order of getifaddrs(3), which NCCL uses
  std::vector<Route> routes;
  std::vector<InfinibandPort> ports;
  std::vector<PciPath> port_paths;     // one per entry of `ports`
  bool can_use_verbs = true;           // this process may open a device file of an RDMA device
  std::vector<std::string> slingshot;  // "cxi0", ..: not RDMA ports to NCCL
  std::vector<Gpu> gpus;               // in the order of their PCI addresses
  NumaDistances numa_distances;
  std::vector<std::string> imex_channels;  // "channel0", ..: device files for NVLink between nodes
  bool can_use_imex = false;               // this process may open one of them
  std::vector<Assignment> nccl_files;      // NCCL uses the first entry of a name
  std::vector<Assignment> open_mpi_files;  // OMPI_MCA_*, with the same rule
  SiteFile site;
  // The values of NCCL_TOPO_FILE in presets that exist on this node.
  std::vector<std::string> topology_files;
  std::vector<std::string> problems;  // one sentence each: an ignored file and the reason

  const NetworkInterface* interface(std::string_view name) const noexcept;
};

// Reads only files: uses no socket and no name service. All reads are bounded, and missing files
// count as absent. Call it as the user who owns `roots.home`, because a home directory may be a
// link to any file, and reading it may hang. `addresses`: the result of local_addresses()
// (host/local_addresses.h), or a test's own list. `site`: the site's file if the caller has already
// read it, for example before entering a container that hides it; otherwise the file below the root
// is read. Throws only std::bad_alloc.
Node read_node(const Roots& roots, std::vector<InterfaceAddress> addresses,
               std::optional<Site> site = std::nullopt);

}  // namespace ddp::fabric

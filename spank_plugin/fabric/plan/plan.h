// SPDX-License-Identifier: Apache-2.0
// The fabric plan of a task: the interface, the RDMA ports, and the few variables of NCCL, Gloo,
// TensorPipe, Open MPI and UCX that select them where the library would choose wrongly by itself.
//
// read_node and make_plan run as the user and in the file system that the libraries will see, which
// is the container's if there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/fabric/files/error.h"
#include "spank_plugin/fabric/node/node.h"

namespace ddp::fabric {

// One variable. The fields are those of launch::PlanEntry.
struct Setting {
  std::string name;
  std::string value;
  std::string rule;    // one phrase
  std::string source;  // the file, table or option of the value
  bool kept = false;   // the value is the user's or a configuration file's, so nothing is set

  bool operator==(const Setting&) const = default;
};

// The plan's inputs from the step. Addresses must be numeric; others are ignored.
struct Request {
  std::uint32_t node_count = 1;  // 0 if unknown; treated as several nodes
  // The addresses of MASTER_ADDR on this node.
  std::vector<std::string> leader_addresses;
  // Addresses of other nodes of the step: used on the leader's own node if MASTER_ADDR is a
  // loopback address there.
  std::vector<std::string> peer_addresses;
  // The result of source_address_to(leader) (host/local_addresses.h), which includes policy
  // routing; without it the main routing table decides.
  std::optional<std::string> source_address;
  // The preset from fabric=NAME on the command line, which overrides the site's; "none" for no
  // preset.
  std::optional<std::string> preset;
  // ucx=bind: give each GPU its nearest RDMA port through UCX_NET_DEVICES.
  bool bind_ucx = false;
  // The GPU that this task computes on, for `bind_ucx`, which need not be the first of the list
  // that it sees. In the format of SLURM_STEP_GPUS: "3" (by PCI order), "GPU-<uuid>" or
  // "0000:1b:00.0".
  std::optional<std::string> gpu;
  // The CPUs on which this task may run, ascending; empty if unknown.
  std::vector<std::uint32_t> cpus = {};
  // The number of bytes that this task may lock; nullopt if unlimited or unknown.
  std::optional<std::uint64_t> locked_memory = {};
};

// Returns the user's value of a variable, or nullopt. Values that an earlier plan set do not count
// (launch::Inherited).
using UserVariables = std::function<std::optional<std::string>(const std::string& name)>;

struct Plan {
  std::vector<Setting> settings;
  std::vector<std::string> notes;     // unchanged variables and the reasons, for explain
  std::vector<std::string> warnings;  // node.problems, and likely failures
  // Those of `warnings` that make the job fail on this node while other nodes may be in order: each
  // node reports them, and only the first node reports the rest, which hold on most nodes.
  std::vector<std::string> node_warnings;
  std::string interface;      // the interface that reaches the leader; empty if unknown
  std::string local_address;  // this node's address on that interface; empty if unknown
  std::string summary;        // "fabric: 8 x mlx5 400 Gb/s InfiniBand, leader through ib0"

  const Setting* find(std::string_view name) const noexcept;
};

// Pure. Throws FabricError for a preset that does not exist, or std::bad_alloc.
Plan make_plan(const Node& node, const Request& request, const UserVariables& user);

}  // namespace ddp::fabric

// The fabric plan of a task: which interface, which RDMA ports, and the few variables of NCCL,
// Gloo, TensorPipe, Open MPI and UCX that say so, where the library would go wrong by itself.
//
// Both steps run as the user, and where the libraries will look: in a container, if there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/fabric/error.h"
#include "spank_plugin/fabric/node.h"

namespace ddp::fabric {

// One variable. The fields are those of launch::PlanEntry.
struct Setting {
  std::string name;
  std::string value;
  std::string rule;    // one phrase
  std::string source;  // the file, table or option that the value comes from
  bool kept = false;   // the user's or a configuration file's own value: nothing is set

  bool operator==(const Setting&) const = default;
};

// What the plan must know of the step. Addresses are numeric; others are ignored.
struct Request {
  std::uint32_t node_count = 1;  // 0 if unknown, which counts as several
  // What MASTER_ADDR resolves to on this node.
  std::vector<std::string> leader_addresses;
  // Of other nodes of the step: what the leader's own node goes by, if there MASTER_ADDR is a
  // loopback address.
  std::vector<std::string> peer_addresses;
  // source_address_to(leader) of host/local_addresses.h, which knows policy routing; without it
  // the main routing table decides.
  std::optional<std::string> source_address;
  // fabric=NAME of the command line; goes before the site's. "none" for no preset.
  std::optional<std::string> preset;
  // ucx=bind: give each GPU its nearest RDMA port by UCX_NET_DEVICES.
  bool bind_ucx = false;
  // The GPU that this task computes on, for that; not the first of a list that all tasks see. As
  // SLURM_STEP_GPUS has it: "3" (by PCI order), "GPU-<uuid>" or "0000:1b:00.0".
  std::optional<std::string> gpu;
  // On which this task may run, ascending; empty if unknown.
  std::vector<std::uint32_t> cpus = {};
  // How many bytes this task may lock; nothing if there is no limit, or it is unknown.
  std::optional<std::uint64_t> locked_memory = {};
};

// The user's value of a variable, or nothing; not what a plan set before (launch::Inherited).
using UserVariables = std::function<std::optional<std::string>(const std::string& name)>;

struct Plan {
  std::vector<Setting> settings;
  std::vector<std::string> notes;     // what was left alone, and why: for explain
  std::vector<std::string> warnings;  // node.problems, and what will probably go wrong
  std::string interface;              // that reaches the leader; empty if unknown
  std::string local_address;          // of this node on it; empty if unknown
  std::string summary;                // "fabric: 8 x mlx5 400 Gb/s InfiniBand, leader through ib0"

  const Setting* find(std::string_view name) const noexcept;
};

// Pure. Throws FabricError for a preset that does not exist, and std::bad_alloc.
Plan make_plan(const Node& node, const Request& request, const UserVariables& user);

}  // namespace ddp::fabric

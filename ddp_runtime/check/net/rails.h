// Which ways there are between the nodes of a step besides the usual one: interfaces that are
// measured one by one, RDMA ports, and GPUs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

// Ports of their own that all tasks' nodes have by the same name, at one speed; none if that leaves
// one only.
std::vector<std::string> alike_rails(const std::map<int, Hello>& present);

// Names the nodes that have no address on the rail; OK if all have.
std::vector<Finding> evaluate_rail(const std::string& rail, const std::map<int, Hello>& present);

struct DevicePlan {
  std::size_t nodes = 0;  // that can be measured
  std::vector<Finding> findings;
};
// Names nodes without an active RDMA port where most have one, and those that lack the tool. No
// findings where there is no RDMA at all.
DevicePlan plan_rdma(const std::map<int, Hello>& present);
// Likewise GPUs, and NCCL for them.
DevicePlan plan_nccl(const std::map<int, Hello>& present);

}  // namespace ddp::check

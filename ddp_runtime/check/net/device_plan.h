// SPDX-License-Identifier: Apache-2.0
// Which nodes have RDMA or GPUs that can be measured, and what is wrong with the others.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

struct DevicePlan {
  std::size_t nodes = 0;  // nodes that can be measured
  std::vector<Finding> findings;
  std::vector<std::string> notes;  // "RDMA was not tested on n[1-3]: REASON"
};
// Names the nodes without an RDMA port if most nodes have one: CRITICAL, but WARNING for another
// kind of node (another_kind.h). If only some nodes have one, a WARNING names these without blaming
// any. Names the nodes without perftest, too, whose findings have the severity `missing_tool`: if
// it is OK, a note names them. No findings if no node has RDMA.
DevicePlan plan_rdma(const std::map<int, Hello>& present, Severity missing_tool);
// Does the same for GPUs and for NCCL on them. A node whose GPUs do not answer is always UNKNOWN.
DevicePlan plan_nccl(const std::map<int, Hello>& present, Severity missing_tool);

}  // namespace ddp::check

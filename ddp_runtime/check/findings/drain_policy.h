// SPDX-License-Identifier: Apache-2.0
// The rules for draining and resuming nodes. They use the node states that SLURM reports, so that a
// fault seen by many nodes does not empty the cluster and no decision of an administrator is
// undone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/findings/verdict.h"

namespace ddp::check {

struct SlurmNode {
  std::string name;
  std::string state;   // "idle", "draining*", "mixed"
  std::string reason;  // "none" or empty if there is no reason
};

// Parses lines "NAME|STATE|REASON", as printed once per partition by `sinfo --noheader --Node
// --format='%N|%T|%E'`. Returns each node once; skips lines of any other form.
std::vector<SlurmNode> slurm_nodes_in(std::string_view text);

bool is_drained(const SlurmNode& node);

// The number of nodes that may be drained at the same time, including nodes drained by others.
struct DrainLimit {
  std::optional<int> nodes = {};
  std::optional<double> part = {};  // fraction of all nodes
};

// Parses "20" or "10%". Throws UsageError.
DrainLimit drain_limit_from(std::string_view text);

// The limit as a number of nodes: at least one, so that a small percentage of a small cluster does
// not round down to zero.
int most_drained(const DrainLimit& limit, std::size_t all);

// Whether one more node may be drained. A node that is already drained may be given a new reason.
bool may_drain(const std::vector<SlurmNode>& nodes, const std::string& node,
               const DrainLimit& limit);

// Whether this node, which ddp-check has just drained, must be resumed because other nodes were
// drained at the same moment and together they exceed the limit. The nodes that come first in name
// order stay drained, so that all processes make the same decision.
bool must_come_back(const std::vector<SlurmNode>& nodes, const std::string& node,
                    const DrainLimit& limit);

// Whether this verdict repeated the check named in the drain reason, on that node, and found no
// problem. Returns false if ddp-check did not write the reason, and if the verdict does not contain
// the check: a node check does not test the network.
bool made_again_and_clean(const Verdict& verdict, const std::string& node,
                          const std::string& reason);

// The number of clean checks in a row since a node was drained for `reason`.
struct CleanRuns {
  int count = 0;
  std::string reason;
};
CleanRuns clean_runs_in(std::string_view text);  // no runs if the text is malformed
std::string text_of(const CleanRuns& runs);
// Adds one clean run. Restarts the count if the reason differs or the run was not clean.
CleanRuns counted_on(const CleanRuns& before, const std::string& reason, bool clean);

}  // namespace ddp::check

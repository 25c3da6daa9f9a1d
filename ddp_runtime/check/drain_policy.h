// SPDX-License-Identifier: Apache-2.0
// When a node may be drained, and when it may be resumed. The rules work on what SLURM reports, so
// that one fault that many nodes see does not empty a cluster and no decision of an administrator
// is undone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/verdict.h"

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

// How many nodes may be drained at the same time, no matter who drained them.
struct DrainLimit {
  std::optional<int> nodes = {};
  std::optional<double> part = {};  // fraction of all nodes
};

// "20" or "10%". Throws UsageError.
DrainLimit drain_limit_from(std::string_view text);

// At least one, so that a small percentage of a small cluster does not round down to zero.
int most_drained(const DrainLimit& limit, std::size_t all);

// Whether one more node may be drained. A node that is already drained may be given a new reason.
bool may_drain(const std::vector<SlurmNode>& nodes, const std::string& node,
               const DrainLimit& limit);

// Whether this node, which we have just drained, must be resumed because others were drained at the
// same moment and together they exceed the limit. Of the nodes drained by us the first in name
// order stay drained, so that all processes decide alike.
bool must_come_back(const std::vector<SlurmNode>& nodes, const std::string& node,
                    const DrainLimit& limit);

// Whether this verdict repeated the check that the reason names, on that node, and found nothing
// wrong. False for reasons that are not ours and for checks that the verdict does not contain: a
// node check says nothing about the network.
bool made_again_and_clean(const Verdict& verdict, const std::string& node,
                          const std::string& reason);

// How many checks in a row were clean since a node was drained for a reason.
struct CleanRuns {
  int count = 0;
  std::string reason;
};
CleanRuns clean_runs_in(std::string_view text);  // no runs if the text has any other form
std::string text_of(const CleanRuns& runs);
// Adds one clean run; starts again if the reason differs or the run was not clean.
CleanRuns counted_on(const CleanRuns& before, const std::string& reason, bool clean);

}  // namespace ddp::check

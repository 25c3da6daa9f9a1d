// When a node may be drained, and when it may come back: rules over what SLURM says, so that one
// fault that many nodes see does not empty a cluster, and no decision of somebody else is undone.
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
  std::string reason;  // "none" or empty if there is none
};

// From lines "NAME|STATE|REASON", as `sinfo --noheader --Node --format='%N|%T|%E'` prints them,
// once for each partition; each node once. Lines of another form are skipped.
std::vector<SlurmNode> slurm_nodes_in(std::string_view text);

bool is_drained(const SlurmNode& node);

// How many nodes may be drained at the same time, by whomever.
struct DrainLimit {
  std::optional<int> nodes = {};
  std::optional<double> part = {};  // of all
};

// "20" or "10%". Throws UsageError.
DrainLimit drain_limit_from(std::string_view text);

// At least one, so that a small part of a small cluster is not nobody.
int most_drained(const DrainLimit& limit, std::size_t all);

// Whether one more node may be drained; a node that is drained already may be given a new reason.
bool may_drain(const std::vector<SlurmNode>& nodes, const std::string& node,
               const DrainLimit& limit);

// Whether this node, which was drained by us just now, has to come back, because others were at the
// same moment and together they are too many. Of ours the first in the order of their names stay,
// so that all of them decide alike.
bool must_come_back(const std::vector<SlurmNode>& nodes, const std::string& node,
                    const DrainLimit& limit);

// Whether the check that this reason names was made again by this verdict, on that node, and found
// nothing. False for reasons that are not ours, and for what the verdict did not look at: a check
// of the node says nothing about the network.
bool made_again_and_clean(const Verdict& verdict, const std::string& node,
                          const std::string& reason);

// How many checks in a row found nothing since a node was drained for a reason.
struct CleanRuns {
  int count = 0;
  std::string reason;
};
CleanRuns clean_runs_in(std::string_view text);  // none if it is not of this form
std::string text_of(const CleanRuns& runs);
// With one more run; another reason, or one that was not clean, starts again.
CleanRuns counted_on(const CleanRuns& before, const std::string& reason, bool clean);

}  // namespace ddp::check

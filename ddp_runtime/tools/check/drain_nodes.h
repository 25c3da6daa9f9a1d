// Takes bad nodes out of service with scontrol, and back in when they are well again, without
// taking anybody else's decision back.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "ddp_runtime/check/drain_policy.h"
#include "ddp_runtime/check/operations.h"

namespace ddp::tools {

// Drains each node that has no reason yet or one of ours, and says what it did, a line for each. A
// node that somebody else drained keeps its reason. With a limit, no more nodes than that are
// drained at a time, counting those that others drained. Throws RuntimeError if scontrol cannot be
// started or does not answer in time; no node is touched twice.
std::string drain_nodes(std::span<const check::Drain> drains,
                        const std::optional<check::DrainLimit>& limit);

// Resumes the node of this verdict when its check has found nothing `clean_runs` times in a row and
// the reason for which it is drained is ours, and says so. The number so far is kept in
// `state_file`. Throws RuntimeError likewise, or if the file cannot be written.
std::string resume_node(const check::Verdict& verdict, int clean_runs,
                        const std::string& state_file);

}  // namespace ddp::tools

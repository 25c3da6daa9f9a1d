// SPDX-License-Identifier: Apache-2.0
// Drains bad nodes with scontrol and resumes them when they are healthy again, without overriding
// decisions of administrators or other tools.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "ddp_runtime/check/drain_policy.h"
#include "ddp_runtime/check/operations.h"

namespace ddp::tools {

// Drains each node that has no reason yet or one of ours, and prints one line for each. A node
// drained for another reason keeps it. With a limit, at most that many nodes are drained at a time,
// counting all drained nodes. Throws RuntimeError if scontrol cannot be started or does not respond
// in time; no node is touched twice.
std::string drain_nodes(std::span<const check::Drain> drains,
                        const std::optional<check::DrainLimit>& limit);

// Resumes the node of this verdict, and prints that it did, if it was drained for a reason of ours
// and its check has been clean `clean_runs` times in a row. The number so far is kept in
// `state_file`. Throws RuntimeError for the same reasons, and if the file cannot be written.
std::string resume_node(const check::Verdict& verdict, int clean_runs,
                        const std::string& state_file);

}  // namespace ddp::tools

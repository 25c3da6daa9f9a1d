// SPDX-License-Identifier: Apache-2.0
// Drains bad nodes with scontrol and resumes them when they are healthy again, without overriding
// decisions of administrators or other tools.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "ddp_runtime/check/findings/drain_policy.h"
#include "ddp_runtime/check/findings/operations.h"

namespace ddp::tools {

// Drains each node that has no drain reason or a reason from ddp-check, and prints one line for
// each. A node drained for another reason keeps it. With a limit, at most that many nodes are
// drained at a time, including nodes drained by others. Throws RuntimeError if scontrol cannot be
// started or does not respond in time. Never changes the same node twice.
std::string drain_nodes(std::span<const check::Drain> drains,
                        const std::optional<check::DrainLimit>& limit);

// Resumes the node of this verdict and prints a message if ddp-check drained it and its check has
// been clean `clean_runs` times in a row. `state_file` keeps the number so far. Throws RuntimeError
// if scontrol cannot be started or does not respond in time, or if the file cannot be written.
std::string resume_node(const check::Verdict& verdict, int clean_runs,
                        const std::string& state_file);

}  // namespace ddp::tools

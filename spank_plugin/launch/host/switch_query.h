// SPDX-License-Identifier: Apache-2.0
// The cluster's switches, by the word of slurmctld.
#pragma once

#include <string>

namespace ddp::launch {

// Runs `scontrol show topology`, for at most 10 s, and returns the switch map of its output; see
// switch_map.h. Empty if slurmctld does not answer, or knows no switches, which is the usual case.
// To be called once for a job or step, never on each node. Throws UsageError if the output cannot
// be read as a map.
std::string query_switch_map();

}  // namespace ddp::launch

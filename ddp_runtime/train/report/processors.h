// SPDX-License-Identifier: Apache-2.0
// The CPUs on which a rank may run, and evidence that it shares them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

// The CPUs in this process's affinity mask, ascending; empty if the system does not report them.
std::vector<int> usable_processors();

// "0-3,8": the notation of taskset and SLURM.
std::string processor_list(const std::vector<int>& processors);

// How many times the system has taken the CPU away from this process, which happens when another
// process needs it.
std::int64_t involuntary_switches();

// Seconds since this process was started; 0 if the system does not report it.
double process_age_seconds();

}  // namespace ddp::train

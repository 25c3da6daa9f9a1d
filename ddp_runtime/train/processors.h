// On which processors a rank may run, and what it shares them with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

// The processors in this process's affinity mask, ascending; empty if the system does not say.
std::vector<int> usable_processors();

// "0-3,8": as taskset and SLURM write them.
std::string processor_list(const std::vector<int>& processors);

// How often the system has taken the processor away from this process so far: what happens when
// something else wants it.
std::int64_t involuntary_switches();

// Seconds since this process was started; 0 if the system does not say.
double process_age_seconds();

}  // namespace ddp::train

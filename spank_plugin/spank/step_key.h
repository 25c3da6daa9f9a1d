// SPDX-License-Identifier: Apache-2.0
// The step key, a random number by which the processes of a step authenticate each other on the
// network. srun generates it and passes it only to the tasks, in their environment, which only
// their user can read. ddp_runtime/comm/secret reads it.
#pragma once

#include <string>

#include "spank_plugin/spank/task_environment.h"

namespace ddp::spank {

// In srun, sbatch and salloc: removes an inherited key, because a step or job that is started
// inside a step must not have that step's key. srun calls it once for all components.
void forget_outer_step_key() noexcept;

// In srun: generates the key of the step that is about to start, unless another of its components
// has already done so. Throws LaunchError if the kernel does not provide random numbers.
void draw_step_key();

// In a task: records which step the key belongs to, because processes that the task starts inherit
// it.
void name_step_of_key(const TaskEnvironment& environment, const std::string& step);

// In slurmstepd: the step's key in hexadecimal digits; empty if there is none.
std::string step_key_digits(const TaskEnvironment& environment);

}  // namespace ddp::spank

// SPDX-License-Identifier: Apache-2.0
// A random number for each step, by which its processes authenticate each other on the network:
// generated in srun, passed to the tasks in their environment, which only their user can read, and
// given to no one else. Read by ddp_runtime/comm/secret.
#pragma once

#include <string>

#include "spank_plugin/spank/task_environment.h"

namespace ddp::spank {

// In srun, sbatch and salloc: a step or job that is started inside a step must not have that step's
// key. In srun once for all components.
void forget_outer_step_key() noexcept;

// In srun: generates the key of the step that is about to start, unless another of its components
// has. Throws LaunchError if the kernel does not provide random numbers.
void draw_step_key();

// In a task: records which step the key belongs to, because processes that the task starts inherit
// it.
void name_step_of_key(const TaskEnvironment& environment, const std::string& step);

}  // namespace ddp::spank

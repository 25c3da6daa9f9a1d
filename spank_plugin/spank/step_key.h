// A random number for each step, by which its processes know each other on the network: drawn in
// srun, handed to the tasks in their environment, which only their user can read, and told nobody.
// Who reads it: ddp_runtime/comm/secret.
#pragma once

#include <string>

#include "spank_plugin/spank/task_environment.h"

namespace ddp::spank {

// In srun, sbatch and salloc: a step or job that is started inside a step must not have that step's
// key. In srun once for all components.
void forget_outer_step_key() noexcept;

// In srun: draws the key of the step that is about to start, unless another of its components has.
// Throws LaunchError if the kernel gives no random numbers.
void draw_step_key();

// In a task: writes down which step the key is of, because what the task starts inherits it.
void name_step_of_key(const TaskEnvironment& environment, const std::string& step);

}  // namespace ddp::spank

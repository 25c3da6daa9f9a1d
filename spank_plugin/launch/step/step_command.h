// SPDX-License-Identifier: Apache-2.0
// Recognizes framework launchers in the command of a step: ranks are started either by SLURM, one
// per task, or by a launcher such as torchrun that each task runs. Only the command line is known,
// so a launcher inside a script stays hidden.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddp::launch {

struct StepCommand {
  bool is_torchrun = false;  // the command itself is torchrun
  // The command is torchrun or starts it: apptainer exec ... torchrun.
  bool mentions_torchrun = false;
  // torchrun with --standalone or --nnodes=1, accelerate launch with --num_machines=1
  bool is_for_each_node = false;
  bool may_lose_nodes = false;  // torchrun with --nnodes=MIN:MAX
  std::string other_launcher;   // "accelerate launch", "deepspeed"; empty if none is found
};

// `words` are the command and its arguments. An argument with spaces is treated as a shell script,
// and its words are searched too.
StepCommand read_step_command(std::span<const std::string_view> words);

// True for MIN:MAX with different numbers.
bool is_range_of_nodes(std::string_view count) noexcept;

// True for `torchrun ...` and `python ... -m torch.distributed.run ...`, with any path.
bool is_torchrun(std::span<const std::string_view> command) noexcept;

}  // namespace ddp::launch

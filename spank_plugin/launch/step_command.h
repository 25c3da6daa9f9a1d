// SPDX-License-Identifier: Apache-2.0
// How ranks will be started, according to the command of a step: by SLURM, one for each task, or by
// a framework's launcher that each task runs. Only the command line is known; a script may hide
// anything.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddp::launch {

struct StepCommand {
  bool is_torchrun = false;  // the command itself is torchrun
  // The command, or one that it starts: apptainer exec ... torchrun.
  bool mentions_torchrun = false;
  bool is_for_each_node = false;  // torchrun with --standalone or --nnodes=1
  std::string other_launcher;     // "accelerate launch", "deepspeed"; empty if none is found
};

// `words`: the command and its arguments. An argument with spaces is treated as a shell script, and
// its words count as well.
StepCommand read_step_command(std::span<const std::string_view> words);

// True for `torchrun ...` and `python ... -m torch.distributed.run ...`, with any path.
bool is_torchrun(std::span<const std::string_view> command) noexcept;

}  // namespace ddp::launch

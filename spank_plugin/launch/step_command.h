#pragma once
// What the command of a step says about how ranks will be started: by SLURM, one for each task, or
// by a launcher of a framework that each task runs. Only what stands on the command line is known;
// a script may hide anything.

#include <span>
#include <string>
#include <string_view>

namespace ddp::launch {

struct StepCommand {
  bool is_torchrun = false;        // the command itself is torchrun
  bool mentions_torchrun = false;  // it, or something that it starts: apptainer exec ... torchrun
  bool is_for_each_node = false;   // torchrun with --standalone or --nnodes=1
  std::string other_launcher;      // "accelerate launch", "deepspeed"; empty if none is seen
};

// `words`: the command and its arguments. An argument with spaces is a script for a shell, and its
// words count as well.
StepCommand read_step_command(std::span<const std::string_view> words);

// True for `torchrun ...` and `python ... -m torch.distributed.run ...`, by whatever path.
bool is_torchrun(std::span<const std::string_view> command) noexcept;

}  // namespace ddp::launch

// SPDX-License-Identifier: Apache-2.0
// A step of an optimizer as a part of a graph that a device replays. See Note [Graphs] in
// parallel/device/device_graph.h.
//
// Note [Steps in graphs]
// A graph repeats kernels with the arguments that they had when it was captured. So the two
// arguments of an update that change from step to step are numbers on the device: the learning
// rate, which the program writes, and the number of the step, which the graph increments. The
// host counts the steps, too, for checkpoints.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace ddp::optim {

// Float32 scalars on the device of the parameters.
struct DeviceNumbers {
  torch::Tensor learning_rate;  // of all parameter groups
  torch::Tensor steps;  // number of steps made; a captured step adds 1, unless it is skipped
};

class StepsInGraphs {
 public:
  virtual ~StepsInGraphs() = default;

  // While a graph is captured: the kernels of a step, without what the host notes about it. A flag
  // that was given to skip_next_step_if() (skipped_steps.h) becomes a part of the graph. Every
  // parameter with a gradient must have been updated before, and all of them as often. Throws
  // RuntimeError with one sentence if ATen's fused operators cannot make the whole step.
  virtual void capture_step(const DeviceNumbers& numbers) = 0;
  // Before each replay: the masters (master_weights.h) take the weights that the program has
  // written since the last step.
  virtual void begin_replay() = 0;
  // After each replay of the captured step: notes on the host that it was made. settle_step() must
  // follow if it has a flag.
  virtual void note_replay() = 0;
  // The value of DeviceNumbers::steps before the next replay, as far as the host has settled the
  // steps.
  virtual std::int64_t steps_made() = 0;

 protected:
  struct Captured {
    std::vector<torch::Tensor> parameters;
    torch::Tensor flag;  // undefined without
  };
  Captured captured_;
};

}  // namespace ddp::optim

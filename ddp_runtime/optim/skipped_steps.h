// SPDX-License-Identifier: Apache-2.0
// Steps of an optimizer that a device may decide to skip.
//
// Note [Skipped steps]
// After an overflow, a step must change nothing. If the host read the flag that says so, it would
// wait for the device in every step. So the flag stays on the device: ATen's fused operators read
// it there, and leave everything as it is if it is set. The host reads it after the next step, see
// Note [Late values], and takes back what it has noted in the meantime: the numbers of steps, and
// states that the skipped step was the first to use. Until then, the number of a step is computed
// on the device: the host's number less the flags of earlier steps.
//
// The operators do not update everything: if a gradient, a parameter or its state does not fit
// (can_be_fused()), if some share memory, or if a parameter is on another device than the flag, the
// host waits for the flag. It also waits in a parameter's second step with momentum, which must
// know whether there was a first one.
#pragma once

#include <torch/torch.h>

#include <deque>
#include <unordered_map>

namespace ddp::optim {

// A step with a flag that the host has not read yet.
struct FlaggedStep {
  struct Part {
    torch::Tensor parameter;
    bool has_new_state;  // no step before this one has used the state
  };

  torch::Tensor flag;
  std::unordered_map<const c10::TensorImpl*, Part> parts;
};

class SkipsSteps {
 public:
  virtual ~SkipsSteps() = default;

  // The next step() changes nothing if `flag`, a float32 scalar on the device of the parameters, is
  // 1, and is a usual step if it is 0. settle_step() must follow, at the latest before the state is
  // saved; other steps may come before.
  void skip_next_step_if(const torch::Tensor& flag) { next_flag_ = flag; }
  // `skipped`: whether the flag of the oldest step that has not been settled is set.
  virtual void settle_step(bool skipped) = 0;

 protected:
  torch::Tensor next_flag_;
  std::deque<FlaggedStep> unsettled_;
};

}  // namespace ddp::optim

// SPDX-License-Identifier: Apache-2.0
// Whether the losses of this rank's steps are finite. On a device, that is known one step later;
// see Note [Late values].
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "ddp_runtime/parallel/device/late_value.h"

namespace ddp {

class LossCheck {
 public:
  // `late`: whether the losses are computed on a device. The same on all ranks.
  explicit LossCheck(bool late) noexcept : late_(late) {}

  // Forgets the losses of a step that was not ended.
  void begin_step() { losses_.clear(); }
  // The loss of a micro-batch of this step.
  void add(const torch::Tensor& loss) { losses_.emplace_back(loss); }

  struct Result {
    std::int64_t step = 0;
    bool finite = true;
  };
  // Ends step number `step`. Returns the newest result that does not wait for it: that of this
  // step, or of the previous one if results are late.
  Result end_step(std::int64_t step);
  // The result of the last step, waiting for the device if necessary.
  Result last();
  bool late() const noexcept { return late_; }

 private:
  struct Step {
    std::int64_t number = 0;
    std::vector<LateValue> losses;
  };
  static Result result_of(Step step);

  bool late_;
  std::vector<LateValue> losses_;  // of this step
  Step last_;                      // a step that has ended, if results are late
};

}  // namespace ddp

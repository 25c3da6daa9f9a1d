// SPDX-License-Identifier: Apache-2.0
// The loss of a step, which on a device is known after the step; see Note [Late values].
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/device/late_value.h"

namespace ddp::train {

class MeanLoss {
 public:
  void add(LateValue micro_batch) { micro_batches_.push_back(std::move(micro_batch)); }

  // On a rank that does not compute the loss.
  bool empty() const noexcept { return micro_batches_.empty(); }
  // Whether value() returns without waiting.
  bool ready() const {
    return std::all_of(micro_batches_.begin(), micro_batches_.end(),
                       [](const LateValue& loss) { return loss.ready(); });
  }
  // The mean over the micro-batches, waiting for the device if necessary.
  double value() {
    double mean = 0;
    for (auto& loss : micro_batches_) {
      mean += loss.value() / static_cast<double>(micro_batches_.size());
    }
    return mean;
  }

 private:
  std::vector<LateValue> micro_batches_;
};

}  // namespace ddp::train

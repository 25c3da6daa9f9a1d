// SPDX-License-Identifier: Apache-2.0
// Averages the losses of a step by the weights of their micro-batches instead of equally.
//
// Note [Weighted losses]
// The reducer averages gradients over ranks and micro-batches equally. If the weights differ, such
// as numbers of targets without padding, the mean over all targets of the step is that of the
// losses multiplied by their share: weight * ranks * micro-batches / sum of all weights. The sum
// needs all ranks, but it depends on the batches alone, so it travels while forward runs.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/objective/objective.h"

namespace ddp::train {

class LossWeights {
 public:
  // Collective. `objective`, which has a weight, and `group` must outlive this object.
  LossWeights(comm::Group& group, const Objective& objective);

  // Collective, at the begin of a step, with its micro-batches in host memory.
  void begin_step(const std::vector<data::Batch>& micro_batches);
  // Whether a micro-batch weighs anything.
  bool counts(std::size_t micro_batch) const { return weights_.at(micro_batch) > 0; }
  // The loss of a micro-batch, multiplied by its share. The mean of these over all ranks and
  // micro-batches is the weighted mean. A micro-batch without weight contributes nothing, even if
  // its loss, a mean over nothing, is not a number. Throws RuntimeError, on all ranks, if the sum
  // of all weights is 0.
  torch::Tensor weighted(const torch::Tensor& loss, std::size_t micro_batch);

 private:
  comm::Group& channel_;
  const Objective& objective_;
  double equal_parts_ = 1;       // ranks * micro-batches
  std::vector<double> weights_;  // of this rank's micro-batches
  // Over all ranks, when `sent_` is done. Shared with the collective, which may outlive a step that
  // throws.
  std::shared_ptr<double> sum_;
  comm::Work sent_;
};

}  // namespace ddp::train

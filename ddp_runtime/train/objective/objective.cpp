// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/objective/objective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "base/errors.h"
#include "ddp_runtime/train/objective/half_cross_entropy.h"

namespace ddp::train {

void require_complete(const Objective& objective) {
  if (!objective.forward && !objective.batch_loss) {
    throw UsageError("the task has neither a forward function nor a batch_loss; give one of them");
  }
  if (objective.loss && objective.batch_loss) {
    throw UsageError(
        "the task has a loss and a batch_loss, which are two ways to say the same; leave out one");
  }
  std::set<std::string> names = {"loss", "accuracy"};
  for (const auto& metric : objective.metrics) {
    if (metric.name.empty() || !metric.mean) {
      throw UsageError("a metric of the task lacks its name or its function");
    }
    if (!names.insert(metric.name).second) {
      throw UsageError(fmt::format(
          "the task has two metrics named '{}' (loss and accuracy are taken); rename one",
          metric.name));
    }
  }
}

torch::Tensor mean_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets) {
  const auto rows = scores.flatten(0, -2);
  const auto wanted = targets.flatten();
  if (has_cheap_cross_entropy(rows)) return half_cross_entropy(rows, wanted);
  // On a GPU, fp16 scores need no copy in float32 for this.
  return torch::nll_loss(torch::log_softmax(rows, -1, torch::kFloat32), wanted);
}

torch::Tensor loss_of(const Objective& objective, const data::Batch& batch,
                      Derivatives derivatives) {
  const auto of_outputs = [&] {
    const auto outputs = objective.forward(batch.inputs);
    // Backward still visits each layer, because other ranks may wait in one.
    if (derivatives == Derivatives::none_of_outputs && outputs.requires_grad()) {
      outputs.register_hook([](const torch::Tensor& mine) { return torch::zeros_like(mine); });
    }
    return objective.loss ? objective.loss(outputs, batch.targets)
                          : mean_cross_entropy(outputs, batch.targets);
  };
  const auto loss = objective.batch_loss ? objective.batch_loss(batch) : of_outputs();
  if (!loss.defined()) throw UsageError("the loss function returned no tensor");
  if (loss.numel() != 1) {
    throw UsageError(fmt::format(
        "the loss must be one number, the mean over the batch, not a tensor of shape [{}]",
        fmt::join(loss.sizes(), ", ")));
  }
  return loss;
}

double weight_of(const Objective& objective, const data::Batch& batch) {
  const double weight = objective.weight(batch);
  if (std::isfinite(weight) && weight >= 0) return weight;
  throw UsageError(
      fmt::format("the weight of a batch is {}; it must be a number that is 0 or more", weight));
}

}  // namespace ddp::train

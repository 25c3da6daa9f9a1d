// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/evaluation.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/data/sampler.h"
#include "ddp_runtime/parallel/each_module.h"
#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/train/batch_transfer.h"
#include "ddp_runtime/train/module_device.h"

namespace ddp::train {
namespace {

using torch::nn::functional::cross_entropy;
using torch::nn::functional::CrossEntropyFuncOptions;

// Puts the module and all of its submodules into evaluation mode for its lifetime. Afterwards each
// is in its previous mode: frozen batch normalization stays frozen.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module) {
    for_each_module(module_, [&](const std::string&, torch::nn::Module& part) {
      was_training_.push_back(part.is_training());
    });
    module_.eval();
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;
  // Restores the outermost module first, because its train() also changes the submodules.
  ~EvaluationMode() {
    auto was = was_training_.begin();
    for_each_module(module_, [&](const std::string&, torch::nn::Module& part) {
      part.train(was != was_training_.end() && *was++);
    });
  }

 private:
  torch::nn::Module& module_;
  std::vector<bool> was_training_;
};

// Reshapes the scores to one row per target.
torch::Tensor rows(const torch::Tensor& scores) {
  return scores.to(torch::kFloat32).flatten(0, -2);
}

}  // namespace

torch::Tensor mean_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets) {
  return cross_entropy(rows(scores), targets.flatten());
}

Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Forward& forward,
                    const data::Dataset& data, std::int64_t samples, std::int64_t batch,
                    amp::Precision precision, const LossFunction& loss) {
  const torch::NoGradGuard no_grad;
  broadcast_from_leader(group, named_buffers(module));
  const EvaluationMode evaluation_mode(module);
  const auto device = device_of(module);
  // Sums of the losses and of the right answers, on the device, which the host reads at the end.
  auto measured = torch::zeros({2}, torch::TensorOptions(device).dtype(torch::kFloat64));
  double targets_seen = 0;
  const auto share = data::evaluation_share(samples, group.rank(), group.size());
  for (std::int64_t first = share.first; first < share.last; first += batch) {
    std::vector<std::int64_t> indices(
        static_cast<std::size_t>(std::min(batch, share.last - first)));
    std::iota(indices.begin(), indices.end(), first);
    // From pinned memory, so that the host prepares the next batch while the device evaluates this.
    const auto [inputs, targets] = to_device(device, pin_for(device, data.get(indices)));
    const amp::AutocastGuard autocast(device.type(), precision);
    if (loss) {
      const auto n = static_cast<double>(indices.size());
      measured[0].add_(loss(forward(inputs), targets).to(torch::kFloat64).reshape({}), n);
      targets_seen += n;
      continue;
    }
    const auto scores = rows(forward(inputs));
    const auto wanted = targets.flatten();
    measured[0].add_(
        cross_entropy(scores, wanted, CrossEntropyFuncOptions().reduction(torch::kSum)));
    measured[1].add_(scores.argmax(1).eq(wanted).sum());
    targets_seen += static_cast<double>(wanted.numel());
  }
  measured = measured.cpu();
  std::array sums = {measured[0].item<double>(), measured[1].item<double>(), targets_seen};
  if (loss) sums[1] = std::numeric_limits<double>::quiet_NaN();
  group.all_reduce(comm::buffer_of(std::span<double>(sums)), comm::ReduceOp::sum, "evaluation")
      .wait();
  if (sums[2] == 0) {
    throw UsageError("there is nothing to evaluate: the evaluation data has no targets");
  }
  return {sums[0] / sums[2], sums[1] / sums[2], static_cast<std::int64_t>(sums[2])};
}

}  // namespace ddp::train

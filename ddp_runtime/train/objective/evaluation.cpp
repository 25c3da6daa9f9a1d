// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/objective/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/data/batch_transfer.h"
#include "ddp_runtime/data/sampler.h"
#include "ddp_runtime/parallel/layers/each_module.h"
#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/units/unit_calls.h"
#include "ddp_runtime/train/objective/half_cross_entropy.h"

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

// In nats, over scores [n, classes] of any type.
torch::Tensor sum_of_losses(const torch::Tensor& scores, const torch::Tensor& targets) {
  if (has_cheap_cross_entropy(scores)) return half_cross_entropies(scores, targets).sum();
  return cross_entropy(scores.to(torch::kFloat32), targets,
                       CrossEntropyFuncOptions().reduction(torch::kSum));
}

// Sums over this rank's batches, on the device; the host reads them at the end.
class Sums {
 public:
  // The first sums; those of the metrics follow.
  enum : std::int64_t { kLoss, kRight, kTargets, kWeight, kMetrics };

  Sums(torch::Device device, std::size_t metrics)
      : sums_(torch::zeros({kMetrics + static_cast<std::int64_t>(metrics)},
                           torch::TensorOptions(device).dtype(torch::kFloat64))) {}

  // Scores [..., classes].
  void add_scores(const torch::Tensor& scores, const torch::Tensor& targets) {
    const auto rows = scores.flatten(0, -2);
    const auto wanted = targets.flatten();
    sums_[kLoss].add_(sum_of_losses(rows, wanted));
    sums_[kRight].add_(rows.argmax(1).eq(wanted).sum());
    sums_[kTargets].add_(wanted.ne(kIgnoredTarget).sum());
  }
  // A mean over nothing may be NaN, so it is left out.
  void add_mean(std::int64_t sum, const torch::Tensor& mean, double weight) {
    if (weight > 0) sums_[sum].add_(mean.to(torch::kFloat64).reshape({}), weight);
  }
  void add_count(std::int64_t sum, double count) { sums_[sum].add_(count); }

  // Waits for the device.
  std::vector<double> values() const {
    const auto host = sums_.cpu();
    return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
  }

 private:
  torch::Tensor sums_;
};

void add_metrics(const std::vector<Metric>& metrics, const torch::Tensor& outputs,
                 const data::Batch& batch, double weight, Sums& sums) {
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const auto mean = metrics[i].mean(outputs, batch);
    if (!mean.defined() || mean.numel() != 1) {
      throw UsageError(fmt::format(
          "the metric '{}' must return one number, the mean over the batch", metrics[i].name));
    }
    sums.add_mean(Sums::kMetrics + static_cast<std::int64_t>(i), mean, weight);
  }
}

// `batch` is on the device, and counts as `weight` samples.
void add_outputs(const Objective& objective, const torch::Tensor& outputs, const data::Batch& batch,
                 double weight, Sums& sums) {
  if (objective.classifies()) {
    sums.add_scores(outputs, batch.targets);
  } else {
    sums.add_mean(
        Sums::kLoss,
        objective.batch_loss ? objective.batch_loss(batch) : objective.loss(outputs, batch.targets),
        weight);
    sums.add_count(Sums::kTargets, weight);
  }
  sums.add_count(Sums::kWeight, weight);
  add_metrics(objective.metrics, outputs, batch, weight, sums);
}

void add_batch(const Objective& objective, const data::Batch& batch, double weight, Sums& sums) {
  const auto outputs = objective.forward ? objective.forward(batch.inputs) : torch::Tensor();
  add_outputs(objective, outputs, batch, weight, sums);
}

std::vector<std::int64_t> numbers_from(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(last - first));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

// Collective.
Evaluation over_all_ranks(comm::Group& group, const Objective& objective, const Sums& sums) {
  auto values = sums.values();
  group.all_reduce(comm::buffer_of(std::span<double>(values)), comm::ReduceOp::sum, "evaluation")
      .wait();
  const double weight = values[Sums::kWeight];
  const double targets = values[Sums::kTargets];
  if (targets == 0) {
    throw UsageError("there is nothing to evaluate: the evaluation data has no targets");
  }
  Evaluation result{values[Sums::kLoss] / targets, values[Sums::kRight] / targets,
                    static_cast<std::int64_t>(targets)};
  if (!objective.classifies()) result.accuracy = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < objective.metrics.size(); ++i) {
    result.metrics[objective.metrics[i].name] = values[Sums::kMetrics + i] / weight;
  }
  return result;
}

}  // namespace

Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Objective& objective,
                    const data::Dataset& data, std::int64_t samples, std::int64_t batch,
                    amp::Precision precision) {
  const Interruption never{[] {}, [] { return false; }};
  return evaluate(group, module, objective, data, samples, batch, precision, never).value();
}

std::optional<Evaluation> evaluate(comm::Group& group, torch::nn::Module& module,
                                   const Objective& objective, const data::Dataset& data,
                                   std::int64_t samples, std::int64_t batch,
                                   amp::Precision precision, const Interruption& interruption) {
  const torch::NoGradGuard no_grad;
  broadcast_from_leader(group, named_buffers(module));
  const EvaluationMode evaluation_mode(module);
  const auto device = device_of(module);
  Sums sums(device, objective.metrics.size());
  const auto share = data::evaluation_share(samples, group.rank(), group.size());
  const auto add = [&](std::int64_t first) {
    const auto indices = numbers_from(first, std::min(first + batch, share.last));
    const auto on_host = data.get(indices);
    const double weight =
        objective.weight ? weight_of(objective, on_host) : static_cast<double>(indices.size());
    // From pinned memory, so that the host prepares the next batch while the device evaluates this.
    const auto there = to_device(device, pin_for(device, on_host));
    const amp::AutocastGuard autocast(device.type(), precision);
    add_batch(objective, there, weight, sums);
  };
  // A rank that has fewer batches takes part in the passes of a sharded model.
  const std::int64_t most = (samples + group.size() - 1) / group.size();
  ForwardPasses passes(module);
  for (std::int64_t done = 0; done < most; done += batch) {
    interruption.ask();
    passes.begin();
    if (share.first + done < share.last) add(share.first + done);
    passes.end();
    if (interruption.answer()) return std::nullopt;
  }
  return over_all_ranks(group, objective, sums);
}

std::optional<Evaluation> evaluate_stages(comm::Group& group, torch::nn::Module& module,
                                          torch::Device device, const Objective& objective,
                                          const data::Dataset& data, std::int64_t samples,
                                          std::int64_t batch, amp::Precision precision,
                                          const StagedForward& forward,
                                          const Interruption& interruption) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode evaluation_mode(module);
  Sums sums(device, objective.metrics.size());
  const auto share = data::evaluation_share(samples, forward.share, forward.shares);
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    std::vector<data::Batch> batches;
    std::vector<double> weights;
    for (auto first = begin; first < end; first += batch) {
      const auto last = std::min(first + batch, end);
      weights.push_back(static_cast<double>(last - first));
      batches.push_back(forward.reads ? to_device(device, data.get(numbers_from(first, last)))
                                      : data::Batch());
    }
    const auto outputs = forward.outputs(batches);
    const amp::AutocastGuard autocast(device.type(), precision);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      add_outputs(objective, outputs[i], batches[i], weights[i], sums);
    }
  };
  // A pipeline that has fewer batches takes part in the agreements.
  const std::int64_t most = (samples + forward.shares - 1) / forward.shares;
  const std::int64_t at_once = batch * static_cast<std::int64_t>(forward.batches_at_once);
  for (std::int64_t done = 0; done < most; done += at_once) {
    interruption.ask();
    const auto first = share.first + done;
    if (first < share.last) add(first, std::min(first + at_once, share.last));
    if (interruption.answer()) return std::nullopt;
  }
  return over_all_ranks(group, objective, sums);
}

}  // namespace ddp::train

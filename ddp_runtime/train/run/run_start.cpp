// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/run_start.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"
#include "ddp_runtime/train/checkpoint/directory/run_directory.h"
#include "ddp_runtime/train/model/bf16_weights.h"
#include "ddp_runtime/train/model/channels_last.h"
#include "ddp_runtime/train/options/global_batch.h"
#include "ddp_runtime/train/options/option_limits.h"
#include "ddp_runtime/train/options/run_difference.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"
#include "ddp_runtime/train/run/run_description.h"
#include "ddp_runtime/train/stages/stage_rules.h"

namespace ddp::train {
namespace {

void require_types(const TrainOptions& options) {
  if (options.param_type == amp::Precision::fp32) return;
  if (options.param_type != amp::Precision::bf16) {
    throw UsageError("--param-type must be fp32 or bf16");
  }
  if (options.precision != amp::Precision::bf16) {
    throw UsageError(
        "--param-type bf16 needs --precision bf16: weights in bf16 are multiplied in bf16");
  }
  // Each addition may lose half a unit in the last of 8 bits.
  if (options.parallel.reduce_type == torch::kFloat32) return;
  constexpr std::int64_t kMaxMicroBatches = 16;
  if (options.micro_batches > kMaxMicroBatches) {
    throw UsageError(
        fmt::format("--param-type bf16 adds the gradients of micro-batches in bf16, which is too "
                    "coarse for {} of them; use --accumulate {} or less, --reduce-type fp32, or "
                    "--param-type fp32",
                    options.micro_batches, kMaxMicroBatches));
  }
}

}  // namespace

TrainOptions same_on_all_ranks(comm::Group& group, const nlohmann::json& subject,
                               TrainOptions options) {
  auto run = shared_settings(options);
  run.update(subject);
  require_same_run(group, run);
  require_within_limits(options);
  require_possible_with_blocks(options);
  require_possible_with_stages(options);
  const int ranks = options.stages.replicas(group.size());
  options.batch = batch_per_rank(options, ranks);
  options.micro_batches = micro_batches_per_rank(options, ranks);
  return options;
}

Objective objective_of(const TrainTask& task, const TrainOptions& options) {
  Objective objective{task.forward, task.loss, task.batch_loss, task.weight, task.metrics};
  require_complete(objective);
  require_types(options);
  if (options.build && options.channels_last) {
    throw UsageError(
        "a model that was divided while it was built (TrainOptions::build) has no weights that "
        "could be converted to channels-last; convert it before, or build it whole");
  }
  if (options.param_type == amp::Precision::bf16) use_bf16_weights(task.module);
  if (!options.channels_last) return objective;
  store_channels_last(task.module, task.model_name);
  if (task.forward) {
    objective.forward = [forward = task.forward](const torch::Tensor& inputs) {
      return forward(in_channels_last(inputs));
    };
  }
  return objective;
}

GraphTask graph_task_of(const TrainTask& task, int ranks) {
  return {.communicates_in_forward = ranks > 1 && communicates_in_forward(task.module),
          .own_optimizer = static_cast<bool>(task.optimizer),
          .weighs_batches = static_cast<bool>(task.weight)};
}

LearningRate learning_rate_of(const TrainOptions& options, int ranks, double base) {
  LearningRate rate;
  rate.base = base;
  if (options.scale_learning_rate) rate.scale = ranks * static_cast<double>(options.micro_batches);
  rate.warmup_steps = options.warmup_steps;
  rate.schedule = options.schedule;
  rate.decay_epochs = options.decay_epochs;
  rate.decay_factor = options.decay_factor;
  return rate;
}

std::uint64_t generator_seed(std::uint64_t seed, int rank) {
  return seed * 1000003U + static_cast<std::uint64_t>(rank) + 1;
}

void require_report_directory(comm::Group& group, const std::filesystem::path& directory) {
  if (directory.empty()) return;
  std::string mine;
  if (group.rank() == 0) {
    mine = why_misplaced_report(directory);
    if (mine.empty()) mine = why_not_writable(directory, "report");
  }
  const auto problem = group.broadcast_text(mine, 0);
  if (!problem.empty()) throw UsageError(problem);
}

void require_evaluation(const TrainTask& task, const TrainOptions& options) {
  if ((options.checkpoint.keep_best || options.patience > 0) &&
      options.checkpoint.best_metric == "accuracy" && task.loss) {
    throw UsageError("best_metric accuracy needs the default loss: a custom one has no accuracy");
  }
  if (options.evaluate_only && !options.checkpoint.directory.empty()) {
    throw UsageError("evaluate_only writes no checkpoints: leave checkpoint.directory empty");
  }
  const auto* const data = task.data.evaluation.get();
  if (data != nullptr && data->size() > 0) return;
  if (data != nullptr) {
    throw UsageError(
        "the evaluation data has no samples; to train without evaluation, leave it out "
        "(nullptr)");
  }
  const char* const what = options.evaluate_only          ? "evaluate_only"
                           : options.patience > 0         ? "patience"
                           : options.checkpoint.keep_best ? "keep_best"
                                                          : nullptr;
  if (what == nullptr) return;
  throw UsageError(fmt::format(
      "{0} needs evaluations, and the DataPair has no evaluation data; add some, or leave out "
      "{0}",
      what));
}

}  // namespace ddp::train

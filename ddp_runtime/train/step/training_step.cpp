// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/training_step.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/train/stages/stage_rules.h"
#include "ddp_runtime/train/step/asynchronous_step.h"
#include "ddp_runtime/train/step/local_step.h"
#include "ddp_runtime/train/step/pipelined_step.h"
#include "ddp_runtime/train/step/synchronous_step.h"

namespace ddp::train {

OnNan parse_on_nan(const std::string& name) {
  if (name == "stop") return OnNan::stop;
  if (name == "skip") return OnNan::skip;
  throw UsageError(fmt::format("--on-nan must be stop or skip, not '{}'", name));
}

void throw_with_work(const PeerFailure& failure, const TrainingStep& step) {
  if (!failure.lost()) return;
  const auto work = step.describe_work_of(failure.rank());
  const std::string text = failure.what();
  if (work.empty() || text.find(work) != std::string::npos) return;
  throw PeerFailure(failure.rank(), fmt::format("{}; {}", text, work), true,
                    failure.is_usage_error());
}

std::unique_ptr<TrainingStep> make_training_step(const StepTask& task, const TrainOptions& options,
                                                 StepParts parts) {
  if (options.stages.wanted()) {
    if (parts.staged == nullptr) {
      throw UsageError(
          "a training with stages (--stages) needs a model that is cut: TrainTask::staged");
    }
    require_possible_with_stages(task.objective, static_cast<bool>(parts.optimizer));
    return std::make_unique<PipelinedStep>(task, *parts.staged, options);
  }
  if (options.staleness) {
    if (options.local) {
      throw UsageError(
          "--staleness and --local-steps are two ways not to wait for other ranks; leave out one "
          "of them");
    }
    if (parts.optimizer) {
      throw UsageError(
          "asynchronous training updates the parameters on its servers, which know sgd only; leave "
          "out the optimizer of the task, or train without staleness");
    }
    if (task.objective.weight) {
      throw UsageError(
          "weights of batches need all ranks in each step; leave them out, or train without "
          "staleness");
    }
    return std::make_unique<AsynchronousStep>(task, options, std::move(parts.log));
  }
  if (options.local) {
    return std::make_unique<LocalStep>(task, options, std::move(parts));
  }
  return std::make_unique<SynchronousStep>(task, options, std::move(parts));
}

}  // namespace ddp::train

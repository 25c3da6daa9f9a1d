// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/training_step.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/train/asynchronous_step.h"
#include "ddp_runtime/train/synchronous_step.h"

namespace ddp::train {

OnNan parse_on_nan(const std::string& name) {
  if (name == "stop") return OnNan::stop;
  if (name == "skip") return OnNan::skip;
  throw UsageError(fmt::format("--on-nan must be stop or skip, not '{}'", name));
}

std::unique_ptr<TrainingStep> make_training_step(comm::Group& group, torch::nn::Module& module,
                                                 const Objective& objective,
                                                 const TrainOptions& options,
                                                 profile::StepRecorder& recorder, StepParts parts) {
  if (options.staleness) {
    if (parts.optimizer) {
      throw UsageError(
          "asynchronous training updates the parameters on its servers, which know sgd only; leave "
          "out the optimizer of the task, or train without staleness");
    }
    if (objective.weight) {
      throw UsageError(
          "weights of batches need all ranks in each step; leave them out, or train without "
          "staleness");
    }
    return std::make_unique<AsynchronousStep>(group, module, objective, options, recorder,
                                              std::move(parts.log));
  }
  return std::make_unique<SynchronousStep>(group, module, objective, options, recorder,
                                           std::move(parts));
}

}  // namespace ddp::train

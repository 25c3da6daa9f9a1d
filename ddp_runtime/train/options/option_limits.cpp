// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/option_limits.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::train {
namespace {

struct Limited {
  const char* name;
  std::int64_t value;
  std::int64_t least;
  std::int64_t most;
};

}  // namespace

void require_within_limits(const TrainOptions& options) {
  const Limited all[] = {{"epochs", options.epochs, 0, kMaxEpochs},
                         {"steps", options.steps, 0, kMaxSteps},
                         {"batch", options.batch, 1, kMaxBatch},
                         {"global_batch", options.global_batch, 0, kMaxGlobalBatch},
                         {"blocks", options.blocks, 0, kMaxBlocks},
                         {"micro_batches", options.micro_batches, 1, kMaxBatch},
                         {"warmup_steps", options.warmup_steps, 0, kMaxSteps},
                         {"decay_epochs", options.decay_epochs,
                          options.schedule == Schedule::step ? 1 : 0, kMaxEpochs},
                         {"staleness", options.staleness.value_or(0), 0, kMaxStaleness},
                         {"local.every", options.local ? options.local->every : 1, 1, kMaxSteps},
                         {"local.from", options.local ? options.local->from : 0, 0, kMaxSteps},
                         {"graph.warm_up", options.graph.warm_up, kMinGraphWarmUp, kMaxSteps},
                         {"loader_threads", options.loader_threads, 0, kMaxLoaderThreads}};
  for (const auto& [name, value, least, most] : all) {
    if (value >= least && value <= most) continue;
    throw UsageError(fmt::format("the option {} of the training is {}; use a number from {} to {}",
                                 name, value, least, most));
  }
  if (options.local) require_valid(*options.local);
  if (!(options.ema_decay >= 0 && options.ema_decay < 1)) {
    throw UsageError(fmt::format(
        "the option ema_decay of the training is {}; use a number from 0 to less than 1",
        options.ema_decay));
  }
  if (options.ema_decay > 0 && options.staleness) {
    throw UsageError(
        "an average of the weights needs the same weights on all ranks; leave out --ema, or train "
        "without --staleness");
  }
}

}  // namespace ddp::train

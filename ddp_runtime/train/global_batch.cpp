// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/global_batch.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::train {

std::int64_t batch_per_rank(const TrainOptions& options, int ranks) {
  if (options.global_batch == 0) return options.batch;
  const std::int64_t parts = ranks * options.micro_batches;
  const std::int64_t below = options.global_batch / parts * parts;
  if (below == options.global_batch) return options.global_batch / parts;
  throw UsageError(fmt::format(
      "a global batch of {} cannot be divided equally among {} rank{} with {} micro-batch{} each; "
      "use {}{}, or another number of ranks",
      options.global_batch, ranks, ranks == 1 ? "" : "s", options.micro_batches,
      options.micro_batches == 1 ? "" : "es", below > 0 ? fmt::format("{} or ", below) : "",
      below + parts));
}

}  // namespace ddp::train

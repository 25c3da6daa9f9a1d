// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/global_batch.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::train {
namespace {

std::int64_t size_of_block(const TrainOptions& options) {
  const std::int64_t below = options.global_batch / options.blocks * options.blocks;
  if (below == options.global_batch) return options.global_batch / options.blocks;
  throw UsageError(fmt::format(
      "a global batch of {} cannot be divided into {} blocks of one size; use {}{}, or another "
      "number of blocks",
      options.global_batch, options.blocks, below > 0 ? fmt::format("{} or ", below) : "",
      below + options.blocks));
}

// Gradients that have the same bits on any number of ranks are added up as a whole.
void require_possible_in_order(const TrainOptions& options) {
  const char* const what = options.shard != Shard::none && options.shard != Shard::optimizer
                               ? "--shard gradients, parameters or hybrid; use --shard optimizer"
                           : options.parallel.hook        ? "--comm-hook; leave out one of them"
                           : options.parallel.reduce_type ? "--reduce-type; leave out one of them"
                                                          : nullptr;
  if (what == nullptr) return;
  throw UsageError(fmt::format("--deterministic with --blocks does not go together with {}", what));
}

void refuse_with_blocks(bool given, const char* what) {
  if (!given) return;
  throw UsageError(
      fmt::format("--blocks does not go together with {}; leave out one of them", what));
}

}  // namespace

std::int64_t batch_per_rank(const TrainOptions& options, int ranks) {
  if (options.global_batch == 0) return options.batch;
  if (options.blocks > 0) return size_of_block(options);
  const std::int64_t parts = ranks * options.micro_batches;
  const std::int64_t below = options.global_batch / parts * parts;
  if (below == options.global_batch) return options.global_batch / parts;
  throw UsageError(
      fmt::format("a global batch of {} cannot be divided equally among {} with {} each; "
                  "use {}{}, or another number of ranks",
                  options.global_batch, counted(ranks, "rank"),
                  counted(options.micro_batches, "micro-batch", "es"),
                  below > 0 ? fmt::format("{} or ", below) : "", below + parts));
}

std::int64_t micro_batches_per_rank(const TrainOptions& options, int ranks) {
  if (options.blocks == 0) return options.micro_batches;
  if (options.blocks % ranks == 0) return options.blocks / ranks;
  std::string near;
  for (const int possible : possible_ranks(options.blocks)) {
    if (possible < ranks) near = fmt::format("{}", possible);
    if (possible < ranks) continue;
    near += fmt::format(" or {}", possible);
    break;
  }
  throw UsageError(
      fmt::format("the {} blocks of a step (--blocks) cannot be divided equally among {} ranks; "
                  "use {} ranks, or another number of blocks",
                  options.blocks, ranks, near));
}

std::vector<int> possible_ranks(std::int64_t blocks) {
  std::vector<int> possible;
  for (std::int64_t ranks = 1; ranks <= blocks; ++ranks) {
    if (blocks % ranks == 0) possible.push_back(static_cast<int>(ranks));
  }
  return possible;
}

std::string describe_possible_ranks(std::int64_t blocks) {
  std::string text;
  const auto possible = possible_ranks(blocks);
  for (std::size_t i = 0; i < possible.size(); ++i) {
    if (i > 0) text += i + 1 == possible.size() ? " or " : ", ";
    text += std::to_string(possible[i]);
  }
  return text;
}

void require_possible_with_blocks(const TrainOptions& options) {
  if (options.blocks == 0) return;
  if (options.global_batch == 0) {
    throw UsageError("--blocks divides the batch of a step; give that, too, as --global-batch");
  }
  refuse_with_blocks(options.micro_batches != 1,
                     "--accumulate, which follows from it and the number of ranks");
  refuse_with_blocks(options.stages.wanted(), "--stages");
  refuse_with_blocks(options.staleness.has_value(), "--staleness");
  refuse_with_blocks(options.local.has_value(), "--local-steps");
  if (options.parallel.ordered_blocks) require_possible_in_order(options);
}

}  // namespace ddp::train

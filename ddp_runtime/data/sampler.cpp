// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/sampler.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::data {
namespace {

std::uint64_t epoch_seed(std::uint64_t seed, std::int64_t epoch) {
  return seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(epoch);
}

}  // namespace

DistributedSampler::DistributedSampler(std::int64_t size, std::uint64_t seed, BatchLayout layout)
    : seed_(seed), layout_(layout), order_(size, epoch_seed(seed, 0)) {
  if (layout.batch < 1 || layout.micro_batches < 1) {
    throw UsageError("a batch must hold at least one sample, and a step at least one batch");
  }
  // global_batch() may overflow before this check.
  const std::int64_t most = size / layout.micro_batches / layout.ranks;
  if (layout.batch > most) {
    throw UsageError(
        fmt::format("the global batch of {:.0f} samples ({} x {} x {}) is larger than the "
                    "{} training samples; {}",
                    static_cast<double>(layout.batch) * static_cast<double>(layout.micro_batches) *
                        layout.ranks,
                    counted(layout.ranks, "rank"), layout.batch,
                    counted(layout.micro_batches, "micro-batch", "es"), size,
                    most > 0 ? fmt::format("use --batch {} or less", most)
                             : "use fewer micro-batches or fewer ranks"));
  }
}

void DistributedSampler::set_epoch(std::int64_t epoch, std::int64_t consumed) {
  epoch_ = epoch;
  consumed_ = consumed;
  order_ = Permutation(order_.size(), epoch_seed(seed_, epoch));
}

std::int64_t DistributedSampler::steps_left() const noexcept {
  return (order_.size() - consumed_) / layout_.global_batch();
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t step, std::int64_t micro) const {
  const std::int64_t first = consumed_after(step) + layout_.block(micro) * layout_.batch;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(layout_.batch));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] = order_(first + static_cast<std::int64_t>(i));
  }
  return samples;
}

std::int64_t DistributedSampler::consumed_after(std::int64_t steps) const noexcept {
  return consumed_ + steps * layout_.global_batch();
}

Share evaluation_share(std::int64_t size, int rank, int ranks) {
  return {size * rank / ranks, size * (rank + 1) / ranks};
}

}  // namespace ddp::data

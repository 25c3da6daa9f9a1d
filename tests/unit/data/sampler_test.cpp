// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "base/errors.h"
#include "tests/unit/error_of.h"

namespace ddp::data {
namespace {

using testing::HasSubstr;

// Counts how often each sample is used when all ranks run `steps` steps from `consumed`.
void use(std::map<std::int64_t, int>& seen, std::int64_t size, BatchLayout layout,
         std::int64_t consumed, std::int64_t steps) {
  for (layout.rank = 0; layout.rank < layout.ranks; ++layout.rank) {
    DistributedSampler sampler(size, 3, layout);
    sampler.set_epoch(2, consumed);
    for (std::int64_t step = 0; step < steps; ++step) {
      for (std::int64_t micro = 0; micro < layout.micro_batches; ++micro) {
        for (const auto i : sampler.indices(step, micro)) ++seen[i];
      }
    }
  }
}

TEST(DistributedSampler, AllRanksTogetherUseEverySampleAtMostOnce) {
  for (const int ranks : {1, 2, 3, 4}) {
    std::map<std::int64_t, int> seen;
    use(seen, 101, {4, 2, 0, ranks}, 0, 101 / (8 * ranks));
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(101 / (8 * ranks) * 8 * ranks));
    for (const auto& [sample, count] : seen) EXPECT_EQ(count, 1) << sample;
  }
}

TEST(DistributedSampler, RanksAndMicroBatchesShareOneOrder) {
  DistributedSampler alone(100, 3, {5, 2, 0, 1});
  for (int rank = 0; rank < 2; ++rank) {
    DistributedSampler sampler(100, 3, {5, 1, rank, 2});
    for (std::int64_t step = 0; step < 10; ++step) {
      EXPECT_EQ(sampler.indices(step, 0), alone.indices(step, rank));
    }
  }
}

TEST(DistributedSampler, ARankHasBlocksInARowIfTheirNumberIsFixed) {
  DistributedSampler alone(100, 3, {2, 12, 0, 1, true});
  for (const int ranks : {1, 2, 3, 4, 6, 12}) {
    const int each = 12 / ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      DistributedSampler sampler(100, 3, {2, each, rank, ranks, true});
      for (int micro = 0; micro < each; ++micro) {
        EXPECT_EQ(sampler.indices(3, micro), alone.indices(3, rank * each + micro));
      }
    }
  }
}

TEST(DistributedSampler, NoSampleIsLostOrRepeatedIfTheNumberOfRanksChanges) {
  std::map<std::int64_t, int> seen;
  use(seen, 120, {2, 1, 0, 4}, 0, 5);    // 40 samples
  use(seen, 120, {2, 1, 0, 3}, 40, 4);   // 24 samples
  use(seen, 120, {2, 1, 0, 2}, 64, 14);  // 56 samples
  EXPECT_EQ(seen.size(), 120U);
  for (const auto& [sample, count] : seen) EXPECT_EQ(count, 1) << sample;
}

TEST(DistributedSampler, EpochsDiffer) {
  DistributedSampler sampler(100, 3, {10, 1, 0, 1});
  const auto first = sampler.indices(0, 0);
  sampler.set_epoch(1);
  EXPECT_NE(sampler.indices(0, 0), first);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.indices(0, 0), first);
}

TEST(DistributedSampler, CountsWholeSteps) {
  DistributedSampler sampler(100, 3, {8, 1, 0, 4});
  EXPECT_EQ(sampler.steps_left(), 3);
  sampler.set_epoch(0, 64);
  EXPECT_EQ(sampler.steps_left(), 1);
  EXPECT_EQ(sampler.consumed_after(1), 96);
}

TEST(DistributedSampler, BatchLargerThanTheDataIsRefusedWithARemedy) {
  const auto error = error_of<UsageError>([] { DistributedSampler(100, 1, {60, 1, 0, 2}); });
  EXPECT_THAT(error, HasSubstr("120 samples"));
  EXPECT_THAT(error, HasSubstr("100 training samples"));
  EXPECT_THAT(error, HasSubstr("--batch 50"));
}

TEST(DistributedSampler, BatchThatOverflowsIsRefusedToo) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto refusal = [](BatchLayout layout) {
    return error_of([&] { DistributedSampler(100, 1, layout); });
  };
  EXPECT_THAT(refusal({kMost, 1, 0, 2}), HasSubstr("use --batch 50 or less"));
  EXPECT_THAT(refusal({kMost, kMost, 0, 2}), HasSubstr("use fewer micro-batches or fewer ranks"));
  // The product of these three is 0 in 64 bits.
  EXPECT_THAT(refusal({1LL << 32, 1LL << 31, 0, 2}), HasSubstr("18446744073709551616 samples"));
  EXPECT_EQ(refusal({50, 1, 0, 2}), "");
}

TEST(EvaluationShare, CoversEverySampleOnce) {
  for (const int ranks : {1, 2, 3, 7}) {
    std::int64_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Share share = evaluation_share(179, rank, ranks);
      EXPECT_EQ(share.first, next);
      next = share.last;
    }
    EXPECT_EQ(next, 179);
  }
}

}  // namespace
}  // namespace ddp::data

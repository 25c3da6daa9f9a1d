// SPDX-License-Identifier: Apache-2.0
// Tests groups of some of the ranks that communicate GPU memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/comm/device/staged_ranks.h"

namespace ddp::comm {
namespace {

using test::GpuRank;
using test::GpuTest;
using test::OnGpu;
using testing::Each;

// Sums in a part and of all ranks, again and again, of GPU memory and of host memory.
void add_in_parts(GpuRank rank) {
  Group* const part = rank.group.split(rank.rank < 3 ? rank.rank % 2 : -1, 0, "part");
  if (part == nullptr) {
    EXPECT_EQ(rank.rank, 3);
  } else {
    EXPECT_EQ(part->size(), rank.rank % 2 == 0 ? 2 : 1);
    EXPECT_EQ(part->world_rank(part->rank()), rank.rank);
  }
  const OnGpu all(rank, 500);
  const OnGpu in_part(rank, 700);
  for (int round = 0; round < 5; ++round) {
    test::fill(all, static_cast<float>(rank.rank + round));
    test::fill(in_part, static_cast<float>(10 * rank.rank + round));
    const Work of_all = rank.group.all_reduce(all.buffer, ReduceOp::sum);
    if (part != nullptr) {
      part->all_reduce(in_part.buffer, ReduceOp::sum).wait();
      const float expected = rank.rank == 1 ? 10.0F + static_cast<float>(round)
                                            : 20.0F + 2 * static_cast<float>(round);
      EXPECT_THAT(test::read<float>(in_part.buffer, rank.stream), Each(expected));
      EXPECT_EQ(part->all_reduce_value<std::int64_t>(1, ReduceOp::sum), part->size());
      part->barrier().wait();
    }
    of_all.wait();
    EXPECT_THAT(test::read<float>(all.buffer, rank.stream),
                Each(static_cast<float>(6 + 4 * round)));
  }
  if (part != nullptr) {
    const auto memory = part->allocate(400);
    const Buffer shared = test::on_stream(memory.get(), 100, ElementType::f32, rank.stream);
    test::write(shared, std::vector<float>(100, 1));
    Group& channel = part->channel("norm");
    channel.all_reduce(shared, ReduceOp::sum).wait();
    EXPECT_THAT(test::read<float>(shared, rank.stream), Each(static_cast<float>(part->size())));
  }
}

class SplitOnGpus : public GpuTest {};

TEST_F(SplitOnGpus, WithNccl) {
  EXPECT_THAT(test::run_gpu_ranks(4, add_in_parts), Each(""));
}

class SplitThroughTheHost : public test::StagedGroupTest {};

TEST_F(SplitThroughTheHost, OfStagedGroups) {
  EXPECT_THAT(test::run_staged_ranks(4, add_in_parts), Each(""));
}

TEST_F(SplitThroughTheHost, NamesTheRanksOfTheJobAndTheGroup) {
  GroupOptions options;
  options.limits.timeout = std::chrono::milliseconds(100);
  const auto open = [](int rank, Group& host, FailureState& failures) {
    NcclOptions gpu = test::quick_options();
    gpu.device = rank;
    test::device_calls().set_device(rank);
    return std::make_unique<StagedGroup>(host, failures, gpu);
  };
  const auto errors = test::run_ranks_on_gpus(
      4, open,
      [](GpuRank rank) {
        Group& part = *rank.group.split(rank.rank % 2, 0, rank.rank % 2 == 1 ? "odd" : "even");
        if (rank.rank == 1) {
          const OnGpu data(rank, 100);
          test::fill(data, 1);
          part.all_reduce(data.buffer, ReduceOp::sum, "values").wait();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
      },
      options);
  EXPECT_THAT(errors[1],
              testing::ContainsRegex("rank 1 waited .* in GPU all_reduce #0 \\(values\\) "
                                     "of group 'odd' \\(ranks 1 and 3\\) for rank 3"));
}

}  // namespace
}  // namespace ddp::comm

// SPDX-License-Identifier: Apache-2.0
// Tests groups of some of the ranks that communicate GPU memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/comm/device/staged_ranks.h"

namespace ddp::comm {
namespace {

using test::GpuRank;
using test::GpuTest;
using test::OnGpu;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;

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

// The collectives of a part may run while one of all ranks does.
class SplitOnGpus : public GpuTest {
 protected:
  void SetUp() override { fake::reset({.collectives_at_once = 2}); }
};

TEST_F(SplitOnGpus, AddsInPartsAndInTheWhole) {
  EXPECT_THAT(test::run_gpu_ranks(4, add_in_parts), Each(""));
}

// Each rank is in two parts and calls the collectives of one before those of the other, such that
// on one stream all would wait for each other.
TEST_F(SplitOnGpus, PartsHaveOrdersOfTheirOwn) {
  const auto body = [](GpuRank rank) {
    const bool in_first_row = rank.rank < 2;
    Group& row = *rank.group.split(in_first_row ? 0 : 1, 0, "row");
    Group& column = *rank.group.split(rank.rank % 2, 0, "column");
    EXPECT_EQ(row.backend(), "nccl");
    const OnGpu of_row(rank, 100);
    const OnGpu of_column(rank, 200);
    test::fill(of_row, static_cast<float>(rank.rank));
    test::fill(of_column, static_cast<float>(rank.rank));
    const bool row_first = rank.rank == 0 || rank.rank == 3;
    std::vector<Work> works;
    if (row_first) works.push_back(row.all_reduce(of_row.buffer, ReduceOp::sum));
    works.push_back(column.all_reduce(of_column.buffer, ReduceOp::sum));
    if (!row_first) works.push_back(row.all_reduce(of_row.buffer, ReduceOp::sum));
    for (auto& work : works) work.wait();
    EXPECT_THAT(test::read<float>(of_row.buffer, rank.stream), Each(in_first_row ? 1 : 5));
    EXPECT_THAT(test::read<float>(of_column.buffer, rank.stream), Each(rank.rank % 2 == 0 ? 2 : 4));
  };
  EXPECT_THAT(test::run_gpu_ranks(4, body), Each(""));
}

TEST_F(SplitOnGpus, MessagesGoByTheRanksOfThePart) {
  const auto body = [](GpuRank rank) {
    Group& part = *rank.group.split(rank.rank % 2, -rank.rank);  // ranks 2 and 0, and 3 and 1
    const OnGpu data(rank, 10);
    if (part.rank() == 0) {
      test::fill(data, static_cast<float>(rank.rank));
      part.send(data.buffer, 1).wait_host();
    } else {
      part.receive(data.buffer, 0).wait();
      EXPECT_THAT(test::read<float>(data.buffer, rank.stream),
                  Each(static_cast<float>(rank.rank + 2)));
    }
  };
  EXPECT_THAT(test::run_gpu_ranks(4, body), Each(""));
}

TEST_F(SplitOnGpus, PartsAreDividedAgain) {
  const auto body = [](GpuRank rank) {
    Group& half = *rank.group.split(rank.rank / 2, 0, "half");
    Group& alone = *half.split(half.rank(), 0, "alone");
    EXPECT_EQ(alone.size(), 1);
    EXPECT_EQ(alone.world_rank(0), rank.rank);
    const OnGpu data(rank, 10);
    test::fill(data, 1);
    half.all_reduce(data.buffer, ReduceOp::sum).wait();
    alone.all_reduce(data.buffer, ReduceOp::sum).wait();
    EXPECT_THAT(test::read<float>(data.buffer, rank.stream), Each(2));
  };
  EXPECT_THAT(test::run_gpu_ranks(4, body), Each(""));
}

// What a rank of the odd part does that the other one does not.
std::vector<std::string> errors_if_odd_ranks(const std::function<void(GpuRank, Group& part)>& body,
                                             std::chrono::milliseconds timeout) {
  return test::run_gpu_ranks(
      4,
      [&](GpuRank rank) {
        Group& part = *rank.group.split(rank.rank % 2, 0, rank.rank % 2 == 1 ? "odd" : "even");
        if (rank.rank % 2 == 1) body(rank, part);
        for (int i = 0; i < 5'000; ++i) {
          rank.failures.throw_if_failed();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ADD_FAILURE() << "nothing has failed";
      },
      [&](int, NcclOptions& options) { options.limits.timeout = timeout; });
}

TEST_F(SplitOnGpus, WaitThatTakesTooLongNamesTheGroup) {
  const auto one_calls = [](GpuRank rank, Group& part) {
    const OnGpu data(rank, 100);
    test::fill(data, 1);
    if (rank.rank == 1) part.all_reduce(data.buffer, ReduceOp::sum, "values").wait_host();
  };
  EXPECT_THAT(errors_if_odd_ranks(one_calls, std::chrono::milliseconds(200)),
              Each(ContainsRegex("rank 1 has waited 0.2 s for all_reduce #0 \\(values\\) of group "
                                 "'odd' \\(ranks 1 and 3\\) on its GPU")));
}

TEST_F(SplitOnGpus, DifferentOrdersInAPartAreReported) {
  const auto turned = [](GpuRank rank, Group& part) {
    const OnGpu data(rank, 100);
    const OnGpu more(rank, 200);
    const bool first = rank.rank == 1;
    part.all_reduce(first ? data.buffer : more.buffer, ReduceOp::sum, first ? "data" : "more");
    part.all_reduce(first ? more.buffer : data.buffer, ReduceOp::sum, first ? "more" : "data");
    part.barrier().wait();
  };
  EXPECT_THAT(
      errors_if_odd_ranks(turned, std::chrono::seconds(5)),
      Each(ContainsRegex("ranks 1 and 3 launched collectives of group 'odd' \\(ranks 1 and "
                         "3\\) in different orders on their GPUs: in launch 0, rank . "
                         "started all_reduce of sum of .00 float32 \\((data|more)\\), but")));
  expected_problems();  // none if the report came before the second launch
}

TEST_F(SplitOnGpus, RankOutsideAPartLearnsThatItCannotStart) {
  fake::reset({.id_error = nccl::kSystemError, .ids = 1});
  const auto errors = test::run_gpu_ranks(3, [](GpuRank rank) {
    rank.group.split(rank.rank == 0 ? -1 : 0, 0, "workers");
    for (int i = 0; i < 5'000; ++i) {
      rank.failures.throw_if_failed();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 cannot create an id for NCCL")));
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

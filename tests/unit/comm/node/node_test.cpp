// SPDX-License-Identifier: Apache-2.0
// Tests ranks that share memory: the map of nodes, real shared memory between processes, the
// barrier, and all-reduce over various placements of ranks on nodes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/errors.h"
#include "ddp_runtime/comm/node/node_barrier.h"
#include "ddp_runtime/comm/node/node_map.h"
#include "ddp_runtime/comm/node/shared_memory.h"
#include "tests/unit/comm/ranks.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(NodeMap, NodesAreInTheOrderOfTheirFirstRanks) {
  const std::vector<std::string> keys{"b", "a", "b", "a", "c"};
  const auto map = map_nodes(keys, 3);
  EXPECT_THAT(map.nodes, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
  EXPECT_EQ(map.mine, 1U);
  EXPECT_EQ(map.place, 1U);
  EXPECT_EQ(map.lanes, 1U) << "the smallest node has one rank";
  EXPECT_FALSE(map.in_rank_order);
}

TEST(NodeMap, BlocksOfRanksAreInRankOrder) {
  const std::vector<std::string> keys{"x", "x", "y", "y"};
  const auto map = map_nodes(keys, 2);
  EXPECT_TRUE(map.in_rank_order);
  EXPECT_EQ(map.lanes, 2U);
  const Subgroup lane = map.lane_subgroup();
  EXPECT_THAT(lane.ranks, ElementsAre(0, 2));
  EXPECT_EQ(lane.me, 1);
  EXPECT_FALSE(map_nodes(std::vector<std::string>{"a", "b"}, 0).shares_memory());
}

TEST(SharedMemory, IsSharedByTwoProcesses) {
  const std::string name = fmt::format("/slurm-ddp-test-{}", getpid());
  auto mine = SharedMemory::create(name, 8192);
  ASSERT_TRUE(mine);
  EXPECT_FALSE(SharedMemory::create(name, 8192)) << "the name is in use";
  EXPECT_FALSE(SharedMemory::open(name, 4096)) << "a different size";
  const pid_t child = fork();
  if (child == 0) {
    auto theirs = SharedMemory::open(name, 8192);
    if (theirs) theirs->span()[5000] = std::byte{42};
    _exit(theirs ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(mine->span()[5000], std::byte{42});
  SharedMemory::remove_name(name);
  EXPECT_FALSE(SharedMemory::open(name, 8192));
}

TEST(SharedMemory, OversizedRequestFailsAndLeavesNoName) {
  const std::string name = fmt::format("/slurm-ddp-test-{}", getpid());
  EXPECT_FALSE(SharedMemory::create(name, std::size_t{1} << 50));
  EXPECT_FALSE(SharedMemory::open(name, std::size_t{1} << 50));
  EXPECT_TRUE(SharedMemory::create(name, 4096)) << "the name is free again";
  SharedMemory::remove_name(name);
}

TEST(NodeBarrier, NoRankPassesBeforeAllHaveArrived) {
  constexpr std::size_t kRanks = 4;
  std::vector<ArrivalCounter> counters(kRanks);
  std::vector<ArrivalCounter*> pointers;
  for (auto& counter : counters) pointers.push_back(&counter);
  std::atomic<std::size_t> arrived{0};
  std::vector<std::thread> threads;
  for (std::size_t me = 0; me < kRanks; ++me) {
    threads.emplace_back([&, me] {
      NodeBarrier barrier(pointers, me);
      for (std::size_t round = 1; round <= 200; ++round) {
        // In some rounds, one rank is so late that the others sleep.
        if (round % 50 == me) std::this_thread::sleep_for(2ms);
        ++arrived;
        barrier.wait([](std::size_t) {});
        EXPECT_GE(arrived.load(), round * kRanks);
        barrier.wait([](std::size_t) {});
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(NodeBarrier, ExceptionFromTheCheckEndsTheWait) {
  std::vector<ArrivalCounter> counters(2);
  NodeBarrier barrier({&counters[0], &counters[1]}, 0);
  EXPECT_THROW(barrier.wait([](std::size_t place) {
    EXPECT_EQ(place, 1U);
    throw std::runtime_error("enough");
  }),
               std::runtime_error);
  EXPECT_EQ(counters[1].sleepers, 0U);
}

struct Placement {
  const char* name;
  std::vector<int> node_of;
};

class NodeAllReduce : public testing::TestWithParam<Placement> {};

float value(int rank, std::size_t i) {
  return 1.0F / static_cast<float>(1 + rank * 13 + static_cast<int>(i % 101));
}

// ((g0 + g1) + g2) + ..., the order in which one process accumulates.
std::vector<float> accumulated(int ranks, std::size_t count) {
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = value(0, i);
    for (int r = 1; r < ranks; ++r) sum += value(r, i);
    sums[i] = sum;
  }
  return sums;
}

// Runs an all_reduce through shared memory and returns every rank's result.
std::vector<std::vector<float>> reduce_shared(const Placement& p, std::size_t count,
                                              std::size_t offset, bool in_order) {
  const auto ranks = static_cast<int>(p.node_of.size());
  std::vector<std::vector<float>> results(p.node_of.size());
  test::run_ranks(
      ranks,
      [&](Group& group) {
        const auto memory = group.allocate((count + offset) * sizeof(float));
        auto* data = reinterpret_cast<float*>(memory.get()) + offset;
        for (int round = 0; round < 3; ++round) {
          for (std::size_t i = 0; i < count; ++i) data[i] = value(group.rank(), i);
          group.all_reduce(buffer_of(std::span(data, count)), ReduceOp::sum).wait();
        }
        results[static_cast<std::size_t>(group.rank())] = {data, data + count};
      },
      {.limits = {.segment_bytes = 256, .window = 3, .timeout = 20s}, .in_rank_order = in_order},
      [&](int rank) { return p.node_of[static_cast<std::size_t>(rank)]; });
  return results;
}

TEST_P(NodeAllReduce, GivesAllRanksBitwiseEqualSums) {
  const Placement& p = GetParam();
  const auto ranks = static_cast<int>(p.node_of.size());
  for (const std::size_t count : {1UL, 15UL, 1000UL, 20000UL}) {
    const auto expected = accumulated(ranks, count);
    const auto results = reduce_shared(p, count, 3, false);
    for (const auto& result : results) {
      EXPECT_EQ(result, results[0]);
      for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(result[i], expected[i], 1e-5) << i;
    }
  }
}

TEST_P(NodeAllReduce, InRankOrderEqualsAccumulationBitwise) {
  const Placement& p = GetParam();
  const auto ranks = static_cast<int>(p.node_of.size());
  for (const std::size_t count : {1UL, 1000UL, 9000UL}) {
    const auto expected = accumulated(ranks, count);
    for (const auto& result : reduce_shared(p, count, 0, true)) EXPECT_EQ(result, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Placements, NodeAllReduce,
    testing::Values(Placement{"OneNodeOfTwo", {0, 0}}, Placement{"OneNodeOfFive", {0, 0, 0, 0, 0}},
                    Placement{"TwoNodesOfOne", {0, 1}}, Placement{"TwoNodesOfTwo", {0, 0, 1, 1}},
                    Placement{"Cyclic", {0, 1, 0, 1}}, Placement{"Uneven", {0, 0, 0, 1}},
                    Placement{"ThreeNodes", {0, 0, 1, 1, 2, 2}}),
    [](const auto& shape) { return shape.param.name; });

// Parts of different sizes, of which one is empty.
Cut odd_cut(std::size_t count, int ranks) {
  Cut cut{std::vector<std::size_t>(static_cast<std::size_t>(ranks), 0)};
  std::size_t left = count;
  for (std::size_t r = 1; r + 1 < cut.sizes.size(); ++r) {
    cut.sizes[r] = left / 3;
    left -= cut.sizes[r];
  }
  cut.sizes.back() = left;
  return cut;
}

TEST_P(NodeAllReduce, PartsHaveItsBits) {
  const Placement& p = GetParam();
  const auto ranks = static_cast<int>(p.node_of.size());
  for (const bool in_order : {false, true}) {
    test::run_ranks(
        ranks,
        [&](Group& group) {
          constexpr std::size_t kMost = 20000;
          const auto memory = group.allocate(kMost * sizeof(float));
          auto* const data = reinterpret_cast<float*>(memory.get());
          const auto fill = [&](std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) data[i] = value(group.rank(), i);
          };
          for (const std::size_t count : {1UL, 15UL, 1000UL, kMost}) {
            const Buffer all = buffer_of(std::span(data, count));
            fill(count);
            group.all_reduce(all, ReduceOp::sum).wait();
            const std::vector<float> expected(data, data + count);
            for (const Cut& cut : {Cut(), odd_cut(count, ranks)}) {
              fill(count);
              group.reduce_scatter(all, cut, ReduceOp::sum).wait();
              const Starts starts = starts_of(cut, count, ranks);
              const auto r = static_cast<std::size_t>(group.rank());
              for (std::size_t i = starts[r]; i < starts[r + 1]; ++i) {
                ASSERT_EQ(data[i], expected[i]) << i << " of rank " << group.rank();
              }
              group.all_gather(all, cut).wait();
              ASSERT_EQ(std::vector<float>(data, data + count), expected);
            }
          }
        },
        {.limits = {.segment_bytes = 256, .window = 3, .timeout = 20s}, .in_rank_order = in_order},
        [&](int rank) { return p.node_of[static_cast<std::size_t>(rank)]; });
  }
}

// Another rank may write to its memory as soon as its own call is done.
TEST_P(NodeAllReduce, PartsAreReadBeforeOtherRanksContinue) {
  const Placement& p = GetParam();
  const auto ranks = static_cast<int>(p.node_of.size());
  test::run_ranks(
      ranks,
      [&](Group& group) {
        constexpr std::size_t kCount = 5000;
        const auto memory = group.allocate(kCount * sizeof(float));
        auto* const data = reinterpret_cast<float*>(memory.get());
        const Buffer all = buffer_of(std::span(data, kCount));
        const Starts starts = even_starts(kCount, ranks);
        const auto r = static_cast<std::size_t>(group.rank());
        for (int round = 1; round <= 30; ++round) {
          const auto mine = static_cast<float>(round);
          std::fill_n(data, kCount, mine);
          group.reduce_scatter(all, Cut(), ReduceOp::sum).wait();
          for (std::size_t i = starts[r]; i < starts[r + 1]; ++i) {
            ASSERT_EQ(data[i], mine * static_cast<float>(ranks));
          }
          std::fill_n(data, kCount, -1.0F);
          std::fill(data + starts[r], data + starts[r + 1], static_cast<float>(group.rank()));
          group.all_gather(all, Cut()).wait();
          for (int owner = 0; owner < ranks; ++owner) {
            const auto o = static_cast<std::size_t>(owner);
            for (std::size_t i = starts[o]; i < starts[o + 1]; ++i) {
              ASSERT_EQ(data[i], static_cast<float>(owner));
            }
          }
        }
      },
      {}, [&](int rank) { return p.node_of[static_cast<std::size_t>(rank)]; });
}

// Memory that does not come from allocate(), or only partly does, takes a different code path with
// the same result.
TEST(NodeAllReduceMemory, AnyBufferWorks) {
  test::run_ranks(2, [](Group& group) {
    const auto memory = group.allocate(64);
    std::vector<float> own(16, 1);
    group.all_reduce(buffer_of(std::span(own)), ReduceOp::sum).wait();
    EXPECT_THAT(own, testing::Each(2));
    auto* shared = reinterpret_cast<float*>(memory.get());
    std::fill_n(shared, 16, 3.0F);
    group.all_reduce(buffer_of(std::span(shared + 4, 8)), ReduceOp::max).wait();
    group.all_reduce(buffer_of(std::span(shared, 16)), ReduceOp::sum).wait();
    EXPECT_EQ(shared[0], 6.0F);
  });
}

TEST(NodeAllReduceMemory, FreedMemoryIsForgotten) {
  test::run_ranks(2, [](Group& group) {
    for (int round = 0; round < 20; ++round) {
      const auto memory = group.allocate(4096);
      std::span<float> data(reinterpret_cast<float*>(memory.get()), 1024);
      EXPECT_THAT(data, testing::Each(0.0F)) << "new memory is zero";
      std::fill(data.begin(), data.end(), 1.0F);
      group.all_reduce(buffer_of(data), ReduceOp::sum).wait();
      EXPECT_THAT(data, testing::Each(2.0F));
    }
  });
}

TEST(NodeAllReduceFailure, MissingRankIsNamed) {
  std::string text;
  try {
    test::run_ranks(3,
                    [](Group& group) {
                      const auto memory = group.allocate(4096);
                      if (group.rank() == 2) {
                        std::this_thread::sleep_for(400ms);
                        return;
                      }
                      group
                          .all_reduce(
                              buffer_of(std::span(reinterpret_cast<float*>(memory.get()), 1024)),
                              ReduceOp::sum, "bucket 0")
                          .wait();
                    },
                    {.limits = {.timeout = 100ms}});
  } catch (const std::exception& e) {
    text = e.what();
  }
  EXPECT_THAT(text, HasSubstr("(bucket 0) for rank 2"));
}

}  // namespace
}  // namespace ddp::comm

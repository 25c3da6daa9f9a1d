// SPDX-License-Identifier: Apache-2.0
// What a group that goes through the host does beyond the contract of all groups: it gives the bits
// of the hosts, in pieces that fit into little memory.
#include "tests/unit/comm/device/staged_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace ddp::comm::test {
namespace {

using testing::Each;
using namespace std::chrono_literals;

// Noise of a rank in the memory of its GPU and of its host.
struct OnBoth {
  OnBoth(const GpuRank& r, std::size_t count) : on_host(noise(count, r.rank)), data(r, count) {
    data.put(on_host);
  }
  Buffer host() { return buffer_of(std::span(on_host)); }

  std::vector<float> on_host;
  Numbers<> data;
};

void compare_with_the_hosts(const GpuRank& r, std::size_t count) {
  for (const auto op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    OnBoth both(r, count);
    r.group.all_reduce(both.data.buffer, op).wait();
    r.host.all_reduce(both.host(), op).wait();
    EXPECT_TRUE(same_bits(both.data.get(), both.on_host)) << to_string(op);
  }
  const auto ranks = static_cast<std::size_t>(r.group.size());
  OnBoth input(r, count * ranks);
  OnBoth output(r, count);
  r.group.reduce_scatter(input.data.buffer, output.data.buffer, ReduceOp::sum).wait();
  r.host.reduce_scatter(input.host(), output.host(), ReduceOp::sum).wait();
  EXPECT_TRUE(same_bits(output.data.get(), output.on_host));

  OnBoth all(r, count);
  for (auto [group, buffer] : {std::pair(&r.group, all.data.buffer), {&r.host, all.host()}}) {
    group->reduce_scatter(buffer, Cut(), ReduceOp::sum).wait();
    group->all_gather(buffer, Cut()).wait();
  }
  EXPECT_TRUE(same_bits(all.data.get(), all.on_host));
}

TEST_F(StagedGroupTest, GivesTheBitsOfTheHosts) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool in_rank_order : {false, true}) {
      const auto compare = [](GpuRank r) {
        EXPECT_EQ(r.group.backend(), r.host.backend());
        for (const std::size_t count : {1, 7, 4096}) compare_with_the_hosts(r, count);
      };
      run_staged(ranks, compare, {.in_rank_order = in_rank_order});
    }
  }
}

// Elements are added in rank order, so their bits do not depend on the pieces.
TEST_F(StagedGroupTest, SendsALargeBufferInPieces) {
  for (const int ranks : {1, 2, 3}) {
    constexpr std::size_t kMemory = 32 << 10;
    fake::reset({.page_locked = static_cast<std::size_t>(ranks) * kMemory,
                 .pageable_copies = false,
                 .polls_per_copy = kSlowCopies});
    const auto compare = [](GpuRank r) {
      for (const std::size_t count : {8192, 8193, 30000}) compare_with_the_hosts(r, count);
    };
    run_staged(ranks, compare, {.memory_bytes = kMemory, .in_rank_order = true});
  }
}

TEST_F(StagedGroupTest, RanksMayShareAGpu) {
  const auto body = [](GpuRank r) {
    EXPECT_EQ(dynamic_cast<StagedGroup&>(r.group).device(), r.rank / 2);
  };
  run_staged(4, body, {.ranks_per_gpu = 2});
}

TEST_F(StagedGroupTest, MoreInFlightThanTheMemoryHolds) {
  constexpr std::size_t kMemory = 64 << 10;
  fake::reset({.page_locked = 3 * kMemory, .pageable_copies = false, .polls_per_copy = 1});
  const auto body = [](GpuRank r) {
    std::vector<Numbers<>> data;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 40; ++i) {
      data.emplace_back(r, 1000 * (i % 9 + 1));
      data.back().fill(static_cast<float>(i));
      works.push_back(r.group.all_reduce(data.back().buffer, ReduceOp::sum));
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      EXPECT_THAT(data[i].get(), Each(static_cast<float>(3 * i)));
    }
  };
  run_staged(3, body, {.memory_bytes = kMemory});
  EXPECT_EQ(fake::page_locked_bytes(), 0U);
}

// All ranks first receive, then send, far more than the memory of collectives.
TEST_F(StagedGroupTest, MessagesDoNotWaitForEachOther) {
  const auto body = [](GpuRank r) {
    std::vector<Numbers<>> in;
    std::vector<Numbers<>> out;
    std::vector<Work> works;
    for (int i = 0; i < 10; ++i) {
      in.emplace_back(r, 2000);
      works.push_back(r.group.receive(in.back().buffer, (r.rank + 3) % 4));
    }
    const Numbers sum(r, 1000);
    sum.fill(1);
    const Work between = r.group.all_reduce(sum.buffer, ReduceOp::sum);
    for (int i = 0; i < 10; ++i) {
      out.emplace_back(r, 2000);
      out.back().fill(static_cast<float>(10 * r.rank + i));
      works.push_back(r.group.send(out.back().buffer, (r.rank + 1) % 4));
    }
    for (const auto& work : works) work.wait();
    between.wait();
    EXPECT_THAT(sum.get(), Each(4));
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_THAT(in[i].get(),
                  Each(static_cast<float>(10 * ((r.rank + 3) % 4)) + static_cast<float>(i)));
    }
  };
  run_staged(4, body, {.memory_bytes = 4096});
}

TEST_F(StagedGroupTest, UsesMemoryAgain) {
  run_staged(1, [](GpuRank r) {
    const Numbers data(r, 1000);
    const Numbers all(r, 1000);
    std::size_t used = 0;
    for (int round = 0; round < 20; ++round) {
      r.group.all_gather(data.buffer, all.buffer).wait_host();
      if (round == 0) used = fake::page_locked_bytes();
      r.group.barrier().wait();  // the memory has returned
    }
    EXPECT_GT(used, 8000U);
    EXPECT_EQ(fake::page_locked_bytes(), used);
  });
}

// The second buffer leaves the GPU of rank 0 although the first one cannot arrive yet.
TEST_F(StagedGroupTest, CopiesOneWhileAnotherOneTravels) {
  std::atomic<bool> copied{false};
  run_staged(2, [&](GpuRank r) {
    const Numbers first(r, 100000);
    const Numbers second(r, 100000);
    first.fill(1);
    second.fill(2);
    while (r.rank == 1 && !copied) std::this_thread::sleep_for(1ms);
    const Work one = r.group.broadcast(first.buffer, 0);
    const Work two = r.group.broadcast(second.buffer, 0);
    two.wait_host();
    copied = true;
    EXPECT_THAT(second.get(), Each(2));
  });
}

// A copy back that began before the hosts have added would give this rank's own numbers.
TEST_F(StagedGroupTest, CopiesBackWhatAllRanksHaveAdded) {
  std::atomic<bool> called{false};
  run_staged(2, [&](GpuRank r) {
    const Numbers data(r, 4);
    data.fill(1);
    r.stream.finish();
    while (r.rank == 1 && !called) std::this_thread::sleep_for(1ms);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    if (r.rank == 0) std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(r.rank == 1 || !work.done());
    called = true;
    work.wait();
    EXPECT_THAT(data.get(), Each(2));
  });
}

}  // namespace
}  // namespace ddp::comm::test

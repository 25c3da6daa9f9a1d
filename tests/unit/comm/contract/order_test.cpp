// SPDX-License-Identifier: Apache-2.0
// Several operations of a group at a time: their order, their times, and what they hold.
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/comm/contract/group_contract.h"

namespace ddp::comm::test {
namespace {

using testing::Each;
using namespace std::chrono_literals;

class GroupOrder : public GroupContract {};
// NCCL's channels share one order.
class GroupWithChannelOrders : public GroupContract {};

INSTANTIATE_TEST_SUITE_P(Of, GroupOrder, testing::ValuesIn(kAllKinds), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Of, GroupWithChannelOrders,
                         testing::ValuesIn(kinds_of({Way::hosts, Way::staged})), name_of_kind);

TEST_P(GroupOrder, BarrierCompletesAfterManyQueuedCollectives) {
  run(4, [](GpuRank r) {
    std::vector<Numbers<>> data;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 100; ++i) {
      data.emplace_back(r, 10 * (i % 37));
      data.back().fill(static_cast<float>(i));
      works.push_back(r.group.all_reduce(data.back().buffer, ReduceOp::sum));
    }
    r.group.barrier("end of the epoch").wait();
    for (std::size_t i = 0; i < data.size(); ++i) {
      EXPECT_TRUE(works[i].done());
      works[i].wait();
      EXPECT_THAT(data[i].get(), Each(static_cast<float>(4 * i)));
    }
  });
}

TEST_P(GroupOrder, LastCollectiveIsTheLastToEnd) {
  run(3, [](GpuRank r) {
    const Numbers data(r, 100);
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) works.push_back(r.group.all_reduce(data.buffer, ReduceOp::max));
    works.back().wait_host();
    for (const auto& work : works) EXPECT_TRUE(work.done());
  });
}

TEST_P(GroupOrder, GroupFinishesItsQueueAtTheEnd) {
  std::vector<std::shared_ptr<std::byte>> memory(40);
  std::vector<Work> works;
  run(2, [&](GpuRank r) {
    for (std::size_t i = 0; i < 20; ++i) {
      const Numbers data(r, 1000);
      data.fill(1);
      memory[2 * i + static_cast<std::size_t>(r.rank)] = data.memory;
      const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
      if (r.rank == 0) works.push_back(work);
    }
  });
  for (const auto& work : works) EXPECT_TRUE(work.done());
  for (const auto& data : memory) EXPECT_EQ(*reinterpret_cast<const float*>(data.get()), 2);
}

// The chain multiplies the sum of the numbers by the square of the number of ranks.
TEST_P(GroupOrder, CollectivesMayUseTheSameMemoryWithoutAWait) {
  run(3, [](GpuRank r) {
    const Numbers data(r, 3000);
    const Buffer& all = data.buffer;
    const Buffer mine = all.slice(static_cast<std::size_t>(r.rank) * 1000, 1000);
    for (int round = 0; round < 3; ++round) {
      data.fill(static_cast<float>(r.rank + round));
      r.group.all_reduce(all, ReduceOp::sum, {}, data.memory);
      r.group.broadcast(all.slice(500, 100), 1, {}, data.memory);
      r.group.reduce_scatter(all, mine, ReduceOp::sum, {}, data.memory);  // in place
      r.group.all_gather(mine, all, {}, data.memory);                     // in place
      r.group.all_reduce(all, ReduceOp::sum, {}, data.memory).wait();
      EXPECT_THAT(data.get(), Each(static_cast<float>(9 * (3 + 3 * round))));
    }
  });
}

TEST_P(GroupOrder, ValuesOfTheHostsBetweenCollectives) {
  run(3, [](GpuRank r) {
    std::mt19937 random(static_cast<unsigned>(r.rank));
    const Numbers data(r, 500);
    for (int round = 0; round < 30; ++round) {
      data.fill(static_cast<float>(round));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
      if (r.rank == 1) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      EXPECT_EQ(r.group.all_reduce_value<std::int64_t>(round, ReduceOp::sum), 3 * round);
      work.wait();
      EXPECT_THAT(data.get(), Each(static_cast<float>(3 * round)));
    }
  });
}

// Ranks 0 and 1 exchange messages between collectives of all three.
TEST_P(GroupOrder, MessagesDoNotDisturbCollectives) {
  run(3, [](GpuRank r) {
    const Numbers sum(r, 1000);
    const Numbers message(r, 2000);
    for (int round = 0; round < 5; ++round) {
      sum.fill(1);
      message.fill(static_cast<float>(r.rank == 0 ? round : -1));
      Work exchanged;
      if (r.rank == 1) exchanged = r.group.receive(message.buffer, 0);
      const Work collective = r.group.all_reduce(sum.buffer, ReduceOp::sum);
      if (r.rank == 0) exchanged = r.group.send(message.buffer, 1);
      collective.wait();
      exchanged.wait();
      EXPECT_THAT(sum.get(), Each(3));
      EXPECT_THAT(message.get(), Each(static_cast<float>(r.rank < 2 ? round : -1)));
    }
  });
}

TEST_P(GroupOrder, RanksCallAtDifferentSpeeds) {
  run(4, [](GpuRank r) {
    const Numbers data(r, 3000);
    const Numbers share(r, 750);
    for (int round = 0; round < 12; ++round) {
      if (round % 4 == r.rank) std::this_thread::sleep_for(3ms);
      data.fill(1);
      const Work sum = r.group.all_reduce(data.buffer, ReduceOp::sum);
      const Work scatter = r.group.reduce_scatter(data.buffer, share.buffer, ReduceOp::sum);
      const Work gather = r.group.all_gather(share.buffer, data.buffer);
      gather.wait();
      scatter.wait();
      sum.wait();
      EXPECT_THAT(data.get(), Each(16));
    }
  });
}

// In this order on all ranks, which suffices for every kind of group.
TEST_P(GroupOrder, ChannelIsAnotherGroupOfTheSameRanks) {
  run_all_sizes([](GpuRank r) {
    Group& norm = r.group.channel("norm");
    EXPECT_EQ(&r.group.channel("norm"), &norm);
    EXPECT_EQ(norm.rank(), r.rank);
    EXPECT_EQ(norm.size(), r.group.size());
    const auto ranks = static_cast<float>(r.group.size());
    const Numbers data(r, r.group.allocate(4000), 1000);
    const Numbers other(r, norm.allocate(4000), 1000);
    for (int round = 0; round < 4; ++round) {
      data.fill(1);
      other.fill(10);
      const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
      norm.all_reduce(other.buffer, ReduceOp::sum).wait();
      work.wait();
      EXPECT_THAT(other.get(), Each(10 * ranks));
      EXPECT_THAT(data.get(), Each(ranks));
    }
  });
}

// Calls in different orders would wait for each other on one channel.
TEST_P(GroupWithChannelOrders, ChannelHasItsOwnOrder) {
  run(4, [](GpuRank r) {
    Group& norm = r.group.channel("norm");
    const Numbers data(r, 4000);
    const Numbers other(r, 4000);
    for (int round = 0; round < 10; ++round) {
      data.fill(1);
      other.fill(10);
      const bool first = (round + r.rank) % 2 == 0;
      Work work = first ? r.group.all_reduce(data.buffer, ReduceOp::sum) : Work();
      norm.all_reduce(other.buffer, ReduceOp::sum).wait();
      if (!first) work = r.group.all_reduce(data.buffer, ReduceOp::sum);
      work.wait();
      EXPECT_THAT(data.get(), Each(4));
      EXPECT_THAT(other.get(), Each(40));
    }
  });
}

TEST_P(GroupOrder, CallHistoriesDifferIfCallsDo) {
  std::array<std::uint64_t, 2> histories{};
  run(2, [&](GpuRank r) {
    const Numbers data(r, 4);
    data.fill(1);
    const auto start = r.group.call_history();
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait_host();
    const auto before = r.group.call_history();
    EXPECT_NE(before, start);
    EXPECT_EQ(r.group.all_reduce_value<float>(static_cast<float>(r.rank), ReduceOp::max), 1);
    EXPECT_NE(r.group.call_history(), before);
    histories[static_cast<std::size_t>(r.rank)] = before;
  });
  EXPECT_EQ(histories[0], histories[1]);
}

TEST_P(GroupOrder, TimesShowWhenACollectiveRan) {
  run(2, [](GpuRank r) {
    const Numbers data(r, 4);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    work.wait_host();
    EXPECT_TRUE(work.done());
    const WorkTimes times = work.times();
    EXPECT_LE(times.queued, times.started);
    EXPECT_LE(times.started, times.finished);
  });
}

// Rank 0's operation cannot end before rank 1 calls. On hosts, the thread that waits is
// then the one that frees the memory; the threads of GPUs free it a moment later.
TEST_P(GroupOrder, EveryOperationHoldsItsMemoryUntilItIsDoneAndNotLonger) {
  using Keep = std::shared_ptr<const void>;
  run(2, [&](GpuRank r) {
    const Numbers input(r, 4);
    const Numbers output(r, 4);
    const Buffer& large = input.buffer;
    const Buffer small = output.buffer.slice(0, 2);
    const std::vector<std::function<Work(Keep)>> operations{
        [&](Keep k) { return r.group.all_reduce(large, ReduceOp::sum, {}, std::move(k)); },
        [&](Keep k) {
          return r.group.reduce_scatter(large, small, ReduceOp::sum, {}, std::move(k));
        },
        [&](Keep k) { return r.group.all_gather(small, large, {}, std::move(k)); },
        [&](Keep k) {
          return r.group.reduce_scatter(large, Cut(), ReduceOp::sum, {}, std::move(k));
        },
        [&](Keep k) { return r.group.all_gather(large, Cut(), {}, std::move(k)); },
        [&](Keep k) { return r.group.broadcast(large, 1, {}, std::move(k)); },
        [&](Keep k) { return r.group.all_to_all(large, output.buffer, {}, {}, std::move(k)); },
        [&](Keep k) {
          return r.rank == 0 ? r.group.receive(large, 1, {}, std::move(k))
                             : r.group.send(large, 0, {}, std::move(k));
        }};
    const auto call = [&](std::size_t i, const std::function<void(bool is_held)>& meanwhile) {
      auto keep = std::make_shared<int>(0);
      const std::weak_ptr<int> held = keep;
      const Work work = operations[i](std::move(keep));
      meanwhile(!held.expired());
      work.wait_host();
      while (r.memory == Memory::device && !held.expired()) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(held.expired()) << "operation " << i;
    };
    const int rounds = r.memory == Memory::host ? 200 : 2;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      std::int64_t go = 0;
      if (r.rank == 1) r.host.receive(buffer_of(go), 0, "go").wait();
      call(i, [&](bool is_held) {
        if (r.rank != 0) return;
        EXPECT_TRUE(is_held) << "operation " << i;
        r.host.send(buffer_of(go), 1, "go").wait();
      });
      for (int round = 0; round < rounds; ++round) call(i, [](bool) {});
    }
  });
}

}  // namespace
}  // namespace ddp::comm::test

// SPDX-License-Identifier: Apache-2.0
// What a group that goes through the host computes, and several calls at a time.
#include "tests/unit/comm/device/staged_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace ddp::comm::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using namespace std::chrono_literals;

// ---- the same results as the group of hosts

void compare_all_reduce(const GpuRank& r, std::size_t count, ReduceOp op) {
  auto values = noise(count, r.rank);
  const OnGpu data(r, count);
  write(data.buffer, values);
  r.group.all_reduce(data.buffer, op, "bucket 3").wait();
  r.host.all_reduce(buffer_of(std::span(values)), op).wait();
  EXPECT_TRUE(same_bits(read<float>(data.buffer, r.stream), values)) << to_string(op);
}

void compare_reduce_scatter(const GpuRank& r, std::size_t count) {
  auto values = noise(count * static_cast<std::size_t>(r.group.size()), 10 + r.rank);
  std::vector<float> mine(count);
  const OnGpu input(r, values.size());
  const OnGpu output(r, count);
  write(input.buffer, values);
  r.group.reduce_scatter(input.buffer, output.buffer, ReduceOp::sum).wait();
  r.host.reduce_scatter(buffer_of(std::span(values)), buffer_of(std::span(mine)), ReduceOp::sum)
      .wait();
  EXPECT_TRUE(same_bits(read<float>(output.buffer, r.stream), mine));
}

void compare_all_gather(const GpuRank& r, std::size_t count) {
  auto values = noise(count, 20 + r.rank);
  std::vector<float> all(count * static_cast<std::size_t>(r.group.size()));
  const OnGpu input(r, count);
  const OnGpu output(r, all.size());
  write(input.buffer, values);
  r.group.all_gather(input.buffer, output.buffer).wait();
  r.host.all_gather(buffer_of(std::span(values)), buffer_of(std::span(all))).wait();
  EXPECT_TRUE(same_bits(read<float>(output.buffer, r.stream), all));
}

void compare_parts_in_place(const GpuRank& r, std::size_t count) {
  Cut cut{std::vector<std::size_t>(static_cast<std::size_t>(r.group.size()), 0)};
  cut.sizes.back() = count - count / 3;
  cut.sizes.front() += count / 3;
  for (const Cut& c : {Cut(), cut}) {
    const Starts starts = starts_of(c, count, r.group.size());
    const auto first = static_cast<std::ptrdiff_t>(starts[static_cast<std::size_t>(r.rank)]);
    auto values = noise(count, 40 + r.rank);
    const OnGpu data(r, count);
    write(data.buffer, values);
    r.group.reduce_scatter(data.buffer, c, ReduceOp::sum).wait();
    r.host.reduce_scatter(buffer_of(std::span(values)), c, ReduceOp::sum).wait();
    const Buffer mine = part_of(data.buffer, starts, r.rank);
    const auto size = static_cast<std::ptrdiff_t>(mine.count);
    const std::vector<float> expected(values.begin() + first, values.begin() + first + size);
    EXPECT_TRUE(same_bits(read<float>(mine, r.stream), expected));
    r.group.all_gather(data.buffer, c).wait();
    r.host.all_gather(buffer_of(std::span(values)), c).wait();
    EXPECT_TRUE(same_bits(read<float>(data.buffer, r.stream), values));
  }
}

void compare_broadcast(const GpuRank& r, std::size_t count, int root) {
  const OnGpu data(r, count);
  write(data.buffer, noise(count, 30 + r.rank));
  r.group.broadcast(data.buffer, root).wait();
  EXPECT_TRUE(same_bits(read<float>(data.buffer, r.stream), noise(count, 30 + root)));
}

void compare_messages(const GpuRank& r, std::size_t count) {
  const int ranks = r.group.size();
  if (ranks == 1) return;
  const int next = (r.rank + 1) % ranks;
  const int previous = (r.rank + ranks - 1) % ranks;
  const OnGpu out(r, count);
  const OnGpu in(r, count);
  write(out.buffer, noise(count, 40 + r.rank));
  const Work sent = r.group.send(out.buffer, next);
  const Work received = r.group.receive(in.buffer, previous);
  received.wait();
  sent.wait();
  EXPECT_TRUE(same_bits(read<float>(in.buffer, r.stream), noise(count, 40 + previous)));
}

void compare_collectives(const GpuRank& r, std::size_t count) {
  for (const auto op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    compare_all_reduce(r, count, op);
  }
  compare_reduce_scatter(r, count);
  compare_all_gather(r, count);
  compare_parts_in_place(r, count);
  for (int root = 0; root < r.group.size(); ++root) compare_broadcast(r, count, root);
}

void compare_all(const GpuRank& r, std::size_t count) {
  compare_collectives(r, count);
  compare_messages(r, count);
}

TEST_F(StagedGroupTest, GivesTheResultsOfTheHostsToTheBit) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool in_rank_order : {false, true}) {
      const auto errors = run_staged_ranks(ranks,
                                           [](GpuRank r) {
                                             EXPECT_EQ(r.group.backend(), r.host.backend());
                                             for (const std::size_t count : {1, 7, 4096})
                                               compare_all(r, count);
                                           },
                                           {.in_rank_order = in_rank_order});
      EXPECT_THAT(errors, Each(""));
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
    const auto errors = run_staged_ranks(ranks,
                                         [](GpuRank r) {
                                           for (const std::size_t count : {8192, 8193, 30000})
                                             compare_collectives(r, count);
                                         },
                                         {.memory_bytes = kMemory, .in_rank_order = true});
    EXPECT_THAT(errors, Each(""));
  }
}

TEST_F(StagedGroupTest, AllTypes) {
  constexpr std::size_t kBytes = 64;
  const auto errors = run_staged_ranks(3, [](GpuRank r) {
    for (const auto type : {ElementType::u8, ElementType::i32, ElementType::i64, ElementType::f16,
                            ElementType::bf16, ElementType::f32, ElementType::f64}) {
      std::vector<std::uint8_t> bytes(kBytes);
      for (std::size_t i = 0; i < kBytes; ++i) {  // no sum overflows
        bytes[i] = static_cast<std::uint8_t>((i + static_cast<std::size_t>(r.rank)) % 32);
      }
      const auto memory = device_memory(kBytes);
      write(on_stream(memory.get(), kBytes, ElementType::u8, r.stream), bytes);
      const std::size_t count = kBytes / size_of(type);
      r.group.all_reduce(on_stream(memory.get(), count, type, r.stream), ReduceOp::sum).wait();
      const auto data = reinterpret_cast<std::byte*>(bytes.data());
      r.host.all_reduce({data, count, type}, ReduceOp::sum).wait();
      const Buffer result = on_stream(memory.get(), kBytes, ElementType::u8, r.stream);
      EXPECT_EQ(read<std::uint8_t>(result, r.stream), bytes) << to_string(type);
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, NothingIsSentToo) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const OnGpu data(r, 1);
    const Buffer none = data.buffer.slice(0, 0);
    r.group.all_reduce(none, ReduceOp::sum).wait();
    r.group.broadcast(none, 1).wait();
    r.group.all_gather(none, none).wait();
    r.group.reduce_scatter(none, none, ReduceOp::sum).wait();
    const Work sent = r.group.send(none, 1 - r.rank);
    r.group.receive(none, 1 - r.rank).wait();
    sent.wait();
    r.group.barrier().wait();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, RanksMayShareAGpu) {
  const auto errors =
      run_staged_ranks(4,
                       [](GpuRank r) {
                         EXPECT_EQ(dynamic_cast<StagedGroup&>(r.group).device(), r.rank / 2);
                         compare_all(r, 1000);
                       },
                       {.ranks_per_gpu = 2});
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, HostMemoryGoesByTheHosts) {
  const auto errors = run_staged_ranks(3, [](GpuRank r) {
    EXPECT_EQ(r.group.all_reduce_value<std::int64_t>(r.rank, ReduceOp::sum), 3);
    EXPECT_THAT(r.group.all_gather_text(std::string(static_cast<std::size_t>(r.rank), 'x')),
                ElementsAre("", "x", "xx"));
    EXPECT_EQ(r.group.broadcast_text("hello", 1), "hello");
    EXPECT_EQ(r.group.channel("norm").all_reduce_value<float>(1, ReduceOp::sum), 3);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, RejectsBuffersThatDoNotFit) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const OnGpu data(r, 8);
    const Buffer four = data.buffer.slice(0, 4);
    Buffer host = four;
    host.memory = Memory::host;
    EXPECT_THROW(r.group.reduce_scatter(four, data.buffer, ReduceOp::sum), std::invalid_argument);
    EXPECT_THROW(r.group.all_gather(data.buffer, four), std::invalid_argument);
    EXPECT_THROW(r.group.all_gather(host, data.buffer), std::invalid_argument);
    EXPECT_THROW(r.group.broadcast(four, 2), std::invalid_argument);
    EXPECT_THROW(r.group.send(four, r.rank), std::invalid_argument);
    EXPECT_THROW(r.group.receive(four, -1), std::invalid_argument);
  });
  EXPECT_THAT(errors, Each(""));
}

// ---- several at a time

TEST_F(StagedGroupTest, MoreInFlightThanTheMemoryHolds) {
  constexpr std::size_t kMemory = 64 << 10;
  fake::reset({.page_locked = 3 * kMemory, .pageable_copies = false, .polls_per_copy = 1});
  const auto errors = run_staged_ranks(
      3,
      [](GpuRank r) {
        std::vector<OnGpu> buffers;
        std::vector<Work> works;
        for (std::size_t i = 0; i < 40; ++i) {
          buffers.emplace_back(r, 1000 * (i % 9 + 1));
          fill(buffers.back(), static_cast<float>(i));
          works.push_back(r.group.all_reduce(buffers.back().buffer, ReduceOp::sum));
        }
        for (std::size_t i = 0; i < works.size(); ++i) {
          works[i].wait();
          EXPECT_THAT(read<float>(buffers[i].buffer, r.stream), Each(static_cast<float>(3 * i)));
        }
      },
      {.memory_bytes = kMemory});
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(fake::page_locked_bytes(), 0U);
}

// As in a group of hosts, without a wait between the calls.
TEST_F(StagedGroupTest, CollectivesMayUseTheSameMemory) {
  const auto errors = run_staged_ranks(
      3,
      [](GpuRank r) {
        auto values = noise(3000, r.rank);
        const auto first = static_cast<std::size_t>(r.rank) * 1000;
        const OnGpu data(r, 3000);
        const Buffer share = data.buffer.slice(first, 1000);
        write(data.buffer, values);
        const auto chain = [&](Group& group, const Buffer& all, const Buffer& mine) {
          group.all_reduce(all, ReduceOp::sum);
          group.broadcast(all.slice(500, 100), 1);
          group.reduce_scatter(all, mine, ReduceOp::sum);  // in place
          group.all_gather(mine, all);                     // in place
          return group.all_reduce(all, ReduceOp::sum);
        };
        const Work work = chain(r.group, data.buffer, share);
        const Buffer host = buffer_of(std::span(values));
        chain(r.host, host, host.slice(first, 1000)).wait();
        work.wait();
        EXPECT_TRUE(same_bits(read<float>(data.buffer, r.stream), values));
      },
      {.memory_bytes = 40000, .in_rank_order = true});
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, UsesMemoryAgain) {
  const auto errors = run_staged_ranks(1, [](GpuRank r) {
    const OnGpu data(r, 1000);
    const OnGpu all(r, 1000);
    std::size_t used = 0;
    for (int round = 0; round < 20; ++round) {
      r.group.all_gather(data.buffer, all.buffer).wait_host();
      if (round == 0) used = fake::page_locked_bytes();
      r.group.barrier().wait();  // the memory has returned
    }
    EXPECT_GT(used, 8000U);
    EXPECT_EQ(fake::page_locked_bytes(), used);
  });
  EXPECT_THAT(errors, Each(""));
}

// The second buffer leaves the GPU of rank 0 although the first one cannot arrive yet.
TEST_F(StagedGroupTest, CopiesOneWhileAnotherOneTravels) {
  std::atomic<bool> copied{false};
  const auto errors = run_staged_ranks(2, [&](GpuRank r) {
    const OnGpu first(r, 100000);
    const OnGpu second(r, 100000);
    fill(first, 1);
    fill(second, 2);
    while (r.rank == 1 && !copied) std::this_thread::sleep_for(1ms);
    const Work one = r.group.broadcast(first.buffer, 0);
    const Work two = r.group.broadcast(second.buffer, 0);
    two.wait_host();
    copied = true;
    EXPECT_THAT(read<float>(second.buffer, r.stream), Each(2));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, HostAndDeviceMemoryMixed) {
  const auto errors = run_staged_ranks(3, [](GpuRank r) {
    std::mt19937 random(static_cast<unsigned>(r.rank));
    const OnGpu data(r, 500);
    for (int round = 0; round < 30; ++round) {
      fill(data, static_cast<float>(round));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
      if (r.rank == 1) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      EXPECT_EQ(r.group.all_reduce_value<std::int64_t>(round, ReduceOp::sum), 3 * round);
      work.wait();
      EXPECT_THAT(read<float>(data.buffer, r.stream), Each(static_cast<float>(3 * round)));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

// Channels have orders of their own.
TEST_F(StagedGroupTest, RanksUseChannelsInDifferentOrders) {
  const auto errors =
      run_staged_ranks(4,
                       [](GpuRank r) {
                         Group& norm = r.group.channel("norm");
                         EXPECT_EQ(&r.group.channel("norm"), &norm);
                         const OnGpu data(r, 4000);
                         const OnGpu other(r, 4000);
                         for (int round = 0; round < 10; ++round) {
                           fill(data, 1);
                           fill(other, 10);
                           Work one;
                           if (r.rank % 2 == 0)
                             one = r.group.all_reduce(data.buffer, ReduceOp::sum);
                           const Work two = norm.all_reduce(other.buffer, ReduceOp::sum);
                           if (r.rank % 2 == 1)
                             one = r.group.all_reduce(data.buffer, ReduceOp::sum);
                           one.wait();
                           two.wait();
                           EXPECT_THAT(read<float>(data.buffer, r.stream), Each(4));
                           EXPECT_THAT(read<float>(other.buffer, r.stream), Each(40));
                         }
                       },
                       {.memory_bytes = 16000});
  EXPECT_THAT(errors, Each(""));
}

// All ranks first receive, then send, far more than the memory of collectives.
TEST_F(StagedGroupTest, MessagesDoNotWaitForEachOther) {
  const auto errors = run_staged_ranks(
      4,
      [](GpuRank r) {
        std::vector<OnGpu> in;
        std::vector<OnGpu> out;
        std::vector<Work> works;
        for (int i = 0; i < 10; ++i) {
          in.emplace_back(r, 2000);
          works.push_back(r.group.receive(in.back().buffer, (r.rank + 3) % 4));
        }
        const OnGpu sum(r, 1000);
        fill(sum, 1);
        const Work between = r.group.all_reduce(sum.buffer, ReduceOp::sum);
        for (int i = 0; i < 10; ++i) {
          out.emplace_back(r, 2000);
          fill(out.back(), static_cast<float>(10 * r.rank + i));
          works.push_back(r.group.send(out.back().buffer, (r.rank + 1) % 4));
        }
        for (const auto& work : works) work.wait();
        between.wait();
        EXPECT_THAT(read<float>(sum.buffer, r.stream), Each(4));
        for (int i = 0; i < 10; ++i) {
          EXPECT_THAT(read<float>(in[static_cast<std::size_t>(i)].buffer, r.stream),
                      Each(static_cast<float>(10 * ((r.rank + 3) % 4) + i)));
        }
      },
      {.memory_bytes = 4096});
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, RanksCallAtDifferentSpeeds) {
  const auto errors = run_staged_ranks(
      4,
      [](GpuRank r) {
        const OnGpu data(r, 3000);
        const OnGpu share(r, 750);
        for (int round = 0; round < 12; ++round) {
          if (round % 4 == r.rank) std::this_thread::sleep_for(3ms);
          fill(data, 1);
          const Work sum = r.group.all_reduce(data.buffer, ReduceOp::sum);
          const Work scatter = r.group.reduce_scatter(data.buffer, share.buffer, ReduceOp::sum);
          const Work gather = r.group.all_gather(share.buffer, data.buffer);
          scatter.wait();
          gather.wait();
          sum.wait();
        }
        r.group.barrier().wait();
      },
      {.memory_bytes = 20000});
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace ddp::comm::test

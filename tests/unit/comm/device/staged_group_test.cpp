// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/staged_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <stdexcept>

#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// Copies of these GPUs take a while, and only page-locked memory may be copied.
constexpr int kSlowCopies = 3;

class StagedGroupTest : public GpuTest {
 protected:
  void SetUp() override { fake::reset({.pageable_copies = false, .polls_per_copy = kSlowCopies}); }
};

struct Settings {
  std::size_t memory_bytes = 1 << 20;
  int ranks_per_gpu = 1;
  bool in_rank_order = false;
  std::function<void(int rank, NcclOptions&)> change = {};
};

std::vector<std::string> run_staged_ranks(int ranks, const std::function<void(GpuRank)>& body,
                                          const Settings& settings = {}) {
  const auto open = [&](int rank, Group& host, FailureState& failures) {
    NcclOptions options = quick_options();
    options.nccl_library = "/does/not/exist.so";  // not needed
    options.device = rank / settings.ranks_per_gpu;
    if (settings.change) settings.change(rank, options);
    return std::make_unique<StagedGroup>(host, failures, options,
                                         StagingOptions{settings.memory_bytes});
  };
  GroupOptions host_options;
  host_options.in_rank_order = settings.in_rank_order;
  return run_ranks_on_gpus(ranks, open, body, host_options);
}

// Numbers whose sums depend on the order of the additions.
std::vector<float> noise(std::size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> values(count);
  for (auto& v : values) v = value(random) * (random() % 2 == 0 ? 1.0F : 1e4F);
  return values;
}

// Device memory of a rank with `count` numbers.
struct OnGpu {
  OnGpu(const GpuRank& r, std::size_t count)
      : memory(device_memory(count * sizeof(float))),
        buffer(on_stream(memory.get(), count, ElementType::f32, r.stream)) {}

  std::shared_ptr<std::byte> memory;
  Buffer buffer;
};

void fill(const OnGpu& data, float value) {
  write(data.buffer, std::vector<float>(data.buffer.count, value));
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

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

// ---- streams

// These two prove that the fake would notice if the group did not order the streams.
TEST_F(StagedGroupTest, MissingWaitIsDetected) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, 1);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    // It has ended long ago, but nothing says so to the stream.
    while (work.times().finished == Clock::time_point()) std::this_thread::sleep_for(1ms);
    read<float>(data.buffer, r.stream);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(expected_problems(),
              Contains(HasSubstr("a kernel that reads reads memory without waiting for a copy")));
}

TEST_F(StagedGroupTest, WrongStreamIsDetected) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const TestStream other;
    const OnGpu data(r, 4);
    write(data.buffer, std::vector<float>(4, 1), other.get());
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait();
    other.finish();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(expected_problems(), Contains(HasSubstr("a copy reads memory without waiting for a "
                                                      "kernel that writes")));
}

TEST_F(StagedGroupTest, ReceivedDataWaitsForEarlierReaders) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, static_cast<float>(r.rank));
    std::vector<float> before(4);
    // On a held device, this kernel is still to run when the message has long arrived.
    if (r.rank == 1) fake::hold(1);
    fake::launch(
        r.stream.get(), "a kernel that reads", {range_of(data.buffer)}, {},
        [&, from = data.buffer.data] { std::memcpy(before.data(), from, 4 * sizeof(float)); });
    const Work work = r.rank == 0 ? r.group.send(data.buffer, 1) : r.group.receive(data.buffer, 0);
    work.wait();
    if (r.rank == 1) fake::release(1);
    EXPECT_THAT(read<float>(data.buffer, r.stream), Each(0));
    EXPECT_THAT(before, Each(static_cast<float>(r.rank)));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, AnotherStreamMayWait) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const TestStream other;
    const OnGpu data(r, 4);
    fill(data, 1);
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait_on(other.get());
    EXPECT_THAT(read<float>(data.buffer, other), Each(2));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, HostWaits) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, 1);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    work.wait_host();
    EXPECT_TRUE(work.done());
    fake::touch("the host", range_of(data.buffer), false);
    EXPECT_EQ(*reinterpret_cast<const float*>(data.buffer.data), 2);
    EXPECT_GE(work.times().started, work.times().queued);
    EXPECT_GE(work.times().finished, work.times().started);
    // Polling leaves no error behind that the program would take for its own.
    EXPECT_EQ(device_calls().take_last_error(), cuda::kSuccess);
  });
  EXPECT_THAT(errors, Each(""));
}

// Neither the call nor done() waits for the GPU, and the data is taken when its kernel has run.
TEST_F(StagedGroupTest, CallDoesNotWaitForTheGpu) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, 0);
    r.stream.finish();
    r.group.barrier().wait();
    fake::hold(r.rank);
    fill(data, static_cast<float>(1 + r.rank));
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(work.done());
    fake::release(r.rank);
    work.wait();
    EXPECT_THAT(read<float>(data.buffer, r.stream), Each(3));
  });
  EXPECT_THAT(errors, Each(""));
}

// A copy back that began before the hosts have added would give this rank's own numbers.
TEST_F(StagedGroupTest, CopiesBackWhatAllRanksHaveAdded) {
  std::atomic<bool> called{false};
  const auto errors = run_staged_ranks(2, [&](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, 1);
    r.stream.finish();
    while (r.rank == 1 && !called) std::this_thread::sleep_for(1ms);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    if (r.rank == 0) std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(r.rank == 1 || !work.done());
    called = true;
    work.wait();
    EXPECT_THAT(read<float>(data.buffer, r.stream), Each(2));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, BarrierWaitsOnTheHostForEarlierCollectives) {
  const auto errors = run_staged_ranks(3, [](GpuRank r) {
    const OnGpu data(r, 1000);
    fill(data, 1);
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) works.push_back(r.group.all_reduce(data.buffer, ReduceOp::max));
    r.group.barrier("end of the epoch").wait();
    for (const auto& work : works) EXPECT_TRUE(work.done());
    fake::touch("the host", range_of(data.buffer), false);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, HoldsWhatTheCallerAsksForUntilTheEnd) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    auto held = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = held;
    const OnGpu data(r, 4);
    fill(data, 1);
    fake::hold(r.rank);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum, {}, std::move(held));
    std::this_thread::sleep_for(5ms);
    EXPECT_FALSE(watched.expired());
    fake::release(r.rank);
    while (!watched.expired()) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(work.done());
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(StagedGroupTest, CallHistoriesDifferIfCallsDo) {
  std::array<std::uint64_t, 2> histories{};
  const auto errors = run_staged_ranks(2, [&](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, 1);
    const auto start = r.group.call_history();
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait_host();
    const auto before = r.group.call_history();
    EXPECT_NE(before, start);
    r.group.all_reduce_value<float>(1, ReduceOp::max);
    EXPECT_NE(r.group.call_history(), before);
    histories[static_cast<std::size_t>(r.rank)] = before;
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(histories[0], histories[1]);
}

// ---- memory of the GPU

TEST_F(StagedGroupTest, AllocatesZerosThatOutliveTheGroup) {
  std::shared_ptr<std::byte> kept;
  const auto errors = run_staged_ranks(2, [&](GpuRank r) {
    const auto memory = r.group.allocate(5000);
    EXPECT_THAT(read<char>(on_stream(memory.get(), 5000, ElementType::u8, r.stream), r.stream),
                Each('\0'));
    EXPECT_NE(r.group.allocate(0), nullptr);
    if (r.rank == 0) kept = memory;
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(fake::leaks(), "1 allocations");
  kept.reset();
}

TEST_F(StagedGroupTest, OutOfMemoryIsReportedOnAllRanks) {
  fake::reset({.memory = 1 << 20});
  const auto errors = run_staged_ranks(3, [](GpuRank r) {
    std::shared_ptr<std::byte> own;
    if (r.rank == 1) own = device_memory(1 << 19);
    r.group.allocate((1 << 19) + 1);
  });
  EXPECT_THAT(errors, Each("rank 1 cannot allocate 524289 bytes on the GPU for communication: out "
                           "of memory"));
}

// ---- the end

TEST_F(StagedGroupTest, FinishesItsQueueAtTheEnd) {
  std::vector<std::shared_ptr<std::byte>> memory(40);
  std::vector<Work> works;
  const auto errors =
      run_staged_ranks(2,
                       [&](GpuRank r) {
                         for (std::size_t i = 0; i < 20; ++i) {
                           const OnGpu data(r, 1000);
                           fill(data, 1);
                           memory[2 * i + static_cast<std::size_t>(r.rank)] = data.memory;
                           const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
                           if (r.rank == 0) works.push_back(work);
                         }
                       },
                       {.memory_bytes = 10000});
  EXPECT_THAT(errors, Each(""));
  for (const auto& work : works) EXPECT_TRUE(work.done());
  for (const auto& data : memory) EXPECT_EQ(*reinterpret_cast<const float*>(data.get()), 2);
}

TEST_F(StagedGroupTest, ErrorOnOneRankEndsAll) {
  const auto errors = run_staged_ranks(4, [](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, 1);
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait_host();
    if (r.rank == 2) throw std::runtime_error("the disk is full");
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    work.wait();
    work.wait_host();
  });
  EXPECT_THAT(errors, Each("the disk is full"));
  EXPECT_EQ(fake::page_locked_bytes(), 0U);
}

TEST_F(StagedGroupTest, QueuedCollectivesAndMessagesFailToo) {
  std::atomic<bool> called{false};
  const auto errors =
      run_staged_ranks(2,
                       [&](GpuRank r) {
                         const OnGpu data(r, 1000);
                         const OnGpu other(r, 4);
                         fill(data, 1);
                         fill(other, 1);
                         const Work message = r.group.receive(other.buffer, 1 - r.rank);
                         std::vector<Work> works;
                         for (int i = 0; i < 30 && r.rank == 0; ++i) {
                           works.push_back(r.group.all_reduce(data.buffer, ReduceOp::sum));
                         }
                         if (r.rank == 0) called = true;
                         while (!called) std::this_thread::sleep_for(1ms);
                         if (r.rank == 1) throw std::runtime_error("the disk is full");
                         EXPECT_EQ(error_of([&] { works.front().wait(); }), "the disk is full");
                         for (const auto& work : works) EXPECT_THROW(work.wait_host(), PeerFailure);
                         EXPECT_THROW(message.wait_host(), PeerFailure);
                         EXPECT_TRUE(works.back().done());
                         EXPECT_THROW(r.group.all_reduce(data.buffer, ReduceOp::sum), PeerFailure);
                       },
                       {.memory_bytes = 10000});
  EXPECT_THAT(errors, ElementsAre("", "the disk is full"));
}

// The group holds the memory of the collectives that rank 1 leaves behind.
TEST_F(StagedGroupTest, GroupIsDestroyedDuringAFailure) {
  const auto errors =
      run_staged_ranks(3,
                       [](GpuRank r) {
                         const OnGpu data(r, 50000);
                         fill(data, 1);
                         for (int i = 0; i < 30; ++i) {
                           r.group.all_reduce(data.buffer, ReduceOp::sum, {}, data.memory);
                           if (r.rank == 1 && i == 20) throw std::runtime_error("the disk is full");
                         }
                         r.group.barrier().wait();
                       },
                       {.memory_bytes = 300000});
  EXPECT_THAT(errors, Each("the disk is full"));
}

// The error is reported only when the group is gone, so this rank cannot wait for the others.
TEST_F(StagedGroupTest, ExceptionMayDestroyTheGroup) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    NcclOptions options = quick_options();
    options.device = r.rank;
    const OnGpu data(r, 100);
    fill(data, 1);
    StagedGroup inner(r.host, r.failures, options);
    inner.all_reduce(data.buffer, ReduceOp::sum, {}, {}).wait_host();
    if (r.rank == 1) {
      const Group& carrier = r.host.channel("GPU");
      const auto before = carrier.call_history();
      inner.all_reduce(data.buffer, ReduceOp::sum, {}, {});
      while (carrier.call_history() == before) std::this_thread::sleep_for(1ms);
      throw std::runtime_error("the disk is full");
    }
    // Rank 0 does not take part.
    while (!r.failures.failed()) std::this_thread::sleep_for(1ms);
    r.failures.throw_if_failed();
  });
  EXPECT_THAT(errors, Each("the disk is full"));
  // A transfer may still write to this memory, so it is not freed.
  EXPECT_EQ(fake::leaks(), "1 allocations");
  fake::reset();
}

// ---- errors of a GPU

TEST_F(StagedGroupTest, ErrorOfACopyNamesCallRankAndGpu) {
  fake::reset({.pageable_copies = false, .copy_error = {{1, 1}}});
  const auto errors = run_staged_ranks(3, [](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, 1);
    r.group.all_reduce(data.buffer, ReduceOp::sum, "bucket 2").wait_host();
  });
  EXPECT_THAT(errors, Each("rank 1 cannot send the data of all_reduce #0 (bucket 2) from GPU 1 "
                           "(0000:02:00.0) through the host, because this or other work of the "
                           "program failed: the GPU cannot copy data to the host "
                           "(cudaMemcpyAsync): fake trouble (1)"));
}

TEST_F(StagedGroupTest, LostGpuEndsAllRanks) {
  const auto errors = run_staged_ranks(3, [](GpuRank r) {
    const OnGpu data(r, 4);
    fill(data, 1);
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait_host();
    r.group.barrier().wait();
    if (r.rank == 1) fake::hold(1);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum, "bucket 2");
    if (r.rank == 1) fake::break_device(1, 700);
    const std::string error = error_of([&] { work.wait_host(); });
    fake::release(1);
    throw RuntimeError(error);
  });
  // The thread may still look after the barrier.
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1 cannot send the data of "),
                                 HasSubstr(" from GPU 1 (0000:02:00.0) through the host, because"),
                                 HasSubstr("an illegal memory access was encountered (700)"))));
}

TEST_F(StagedGroupTest, CopyThatDoesNotEndIsReported) {
  const auto errors = run_staged_ranks(2,
                                       [](GpuRank r) {
                                         const OnGpu data(r, 4);
                                         fill(data, 1);
                                         if (r.rank == 1) fake::hold(1);
                                         const Work work = r.group.all_reduce(
                                             data.buffer, ReduceOp::sum, "bucket 7");
                                         while (!r.failures.failed())
                                           std::this_thread::sleep_for(1ms);
                                         fake::release(1);
                                         work.wait_host();
                                       },
                                       {.change = [](int, NcclOptions& options) {
                                         options.limits.timeout = 1s;
                                         options.limits.report_after = 100ms;
                                       }});
  EXPECT_THAT(errors, Each("rank 1 has waited 1.0 s for its GPU to copy the data of all_reduce #0 "
                           "(bucket 7)"));
}

TEST_F(StagedGroupTest, MissingHostMemoryIsReported) {
  fake::reset({.page_locked = 100, .pageable_copies = false});
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    const OnGpu data(r, 4000);
    fill(data, 1);
    r.stream.finish();
    const Work work = r.rank == 0 ? r.group.send(data.buffer, 1) : Work();
    while (!r.failures.failed()) std::this_thread::sleep_for(1ms);
    r.failures.throw_if_failed();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 0 cannot send the data of send to rank 1 of 4000 "
                                           "float32 from GPU 0"),
                                 HasSubstr("CUDA cannot allocate 16384 bytes of page-locked memory "
                                           "of the host (cudaMallocHost): out of memory (2)"))));
}

// ---- the start

TEST_F(StagedGroupTest, SaysWhatIsMissing) {
  const auto must_not_start = [](GpuRank) { FAIL() << "the group has started"; };
  fake::reset({.driver_version = 0});
  EXPECT_THAT(run_staged_ranks(2, must_not_start),
              Each(AllOf(HasSubstr("the MPI backend cannot use GPUs (all 2 ranks, the first on "
                                   "node1): this machine has no NVIDIA driver"),
                         HasSubstr("use --device cpu"), Not(HasSubstr("NCCL")))));
  fake::reset({.devices = 1});
  EXPECT_THAT(
      run_staged_ranks(2, must_not_start),
      Each(HasSubstr("cannot use GPUs (rank 1 on node1): this process sees 1 GPU, but needs "
                     "the one with number 1")));
  fake::reset();
  const auto without_cuda = [](int rank, NcclOptions& options) {
    if (rank == 1) options.prepare = [] { throw UsageError("this PyTorch has no CUDA"); };
  };
  EXPECT_THAT(run_staged_ranks(3, must_not_start, {.change = without_cuda}),
              Each(HasSubstr("(rank 1 on node1): this PyTorch has no CUDA")));
}

TEST_F(StagedGroupTest, RanksOfANodeTakeItsGpusInTurns) {
  fake::reset({.devices = 2, .pageable_copies = false});
  const auto by_default = [](int, NcclOptions& options) { options.device.reset(); };
  const auto errors = run_staged_ranks(
      4, [](GpuRank r) { EXPECT_EQ(dynamic_cast<StagedGroup&>(r.group).device(), r.rank % 2); },
      {.change = by_default});
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace ddp::comm::test

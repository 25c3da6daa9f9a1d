// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "ddp_runtime/comm/half_precision.h"
#include "tests/unit/comm/device/gpu_ranks.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

class NcclGroupTest : public GpuTest {};

std::vector<float> counted(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// ---- collectives

TEST_F(NcclGroupTest, AllReduce) {
  for (const int ranks : {1, 2, 4}) {
    const auto errors = run_gpu_ranks(ranks, [&](GpuRank r) {
      EXPECT_EQ(r.group.backend(), "nccl");
      EXPECT_EQ(r.group.size(), ranks);
      const auto memory = r.group.allocate(100 * sizeof(float));
      const Buffer data = on_stream(memory.get(), 100, ElementType::f32, r.stream);
      for (int round = 0; round < 3; ++round) {
        write(data, std::vector<float>(100, static_cast<float>(r.rank + 1)));
        const Work work = r.group.all_reduce(data, ReduceOp::sum, "bucket 3");
        work.wait();
        EXPECT_THAT(read<float>(data, r.stream), Each(static_cast<float>(ranks * (ranks + 1)) / 2));
        work.wait_host();
        EXPECT_TRUE(work.done());
        EXPECT_GE(work.times().finished, work.times().queued);
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
}

template <class T>
void reduce_all_ways(const GpuRank& r, ElementType type, const std::function<T(int)>& value) {
  const auto memory = r.group.allocate(8 * sizeof(T));
  const Buffer data = on_stream(memory.get(), 8, type, r.stream);
  for (const auto& [op, expected] :
       {std::pair(ReduceOp::sum, 6), {ReduceOp::min, 1}, {ReduceOp::max, 3}}) {
    write(data, std::vector<T>(8, value(r.rank + 1)));
    r.group.all_reduce(data, op).wait();
    EXPECT_THAT(read<T>(data, r.stream), Each(value(expected)))
        << to_string(type) << " " << to_string(op);
  }
}

TEST_F(NcclGroupTest, AllReduceOfEachTypeByEachOperation) {
  const auto errors = run_gpu_ranks(3, [](GpuRank r) {
    reduce_all_ways<std::uint8_t>(r, ElementType::u8,
                                  [](int i) { return static_cast<std::uint8_t>(i); });
    reduce_all_ways<std::int32_t>(r, ElementType::i32, [](int i) { return i; });
    reduce_all_ways<std::int64_t>(r, ElementType::i64, [](int i) { return i; });
    reduce_all_ways<float>(r, ElementType::f32, [](int i) { return static_cast<float>(i); });
    reduce_all_ways<double>(r, ElementType::f64, [](int i) { return i; });
    reduce_all_ways<std::uint16_t>(r, ElementType::f16,
                                   [](int i) { return float_to_f16(static_cast<float>(i)); });
    reduce_all_ways<std::uint16_t>(r, ElementType::bf16,
                                   [](int i) { return float_to_bf16(static_cast<float>(i)); });
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, ReduceScatterAllGatherAndBroadcast) {
  const auto errors = run_gpu_ranks(3, [](GpuRank r) {
    const auto memory = r.group.allocate(8 * sizeof(float));
    const auto all = r.group.allocate(6 * sizeof(float));
    const Buffer two = on_stream(memory.get(), 2, ElementType::f32, r.stream);
    const Buffer six = on_stream(all.get(), 6, ElementType::f32, r.stream);
    const auto rank = static_cast<float>(r.rank);

    write(six, counted(6, rank));
    r.group.reduce_scatter(six, two, ReduceOp::sum).wait();
    EXPECT_THAT(read<float>(two, r.stream), ElementsAre(3 + 6 * rank, 6 + 6 * rank));

    write(two, std::vector<float>{rank, 10 + rank});
    r.group.all_gather(two, six).wait();
    EXPECT_THAT(read<float>(six, r.stream), ElementsAre(0, 10, 1, 11, 2, 12));

    write(six, std::vector<float>(6, rank));
    r.group.broadcast(six, 2).wait();
    EXPECT_THAT(read<float>(six, r.stream), Each(2));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, ReduceScatterAndAllGatherInPlace) {
  const auto errors = run_gpu_ranks(3, [](GpuRank r) {
    const auto memory = r.group.allocate(6 * sizeof(float));
    const Buffer six = on_stream(memory.get(), 6, ElementType::f32, r.stream);
    for (const Cut& cut : {Cut(), Cut{{3, 0, 3}}}) {
      const Starts starts = starts_of(cut, 6, 3);
      const Buffer mine = part_of(six, starts, r.rank);
      write(six, counted(6, static_cast<float>(r.rank)));
      r.group.reduce_scatter(six, cut, ReduceOp::sum).wait();
      const auto sums = read<float>(mine, r.stream);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto index = starts[static_cast<std::size_t>(r.rank)] + i;
        EXPECT_EQ(sums[i], static_cast<float>(3 + 3 * index)) << index;
      }
      write(six, std::vector<float>(6, -1));
      if (mine.count > 0) write(mine, std::vector<float>(mine.count, static_cast<float>(r.rank)));
      r.group.all_gather(six, cut).wait();
      EXPECT_THAT(read<float>(six, r.stream), cut.sizes.empty() ? ElementsAre(0, 0, 1, 1, 2, 2)
                                                                : ElementsAre(0, 0, 0, 2, 2, 2));
    }
    EXPECT_THROW(r.group.all_gather(six, Cut{{1, 2}}), std::invalid_argument);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, ManyCollectivesInFlight) {
  const auto errors = run_gpu_ranks(4, [](GpuRank r) {
    std::vector<std::shared_ptr<std::byte>> memory;
    std::vector<Buffer> buffers;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 50; ++i) {
      memory.push_back(r.group.allocate(4 * (i + 1)));
      buffers.push_back(on_stream(memory.back().get(), i + 1, ElementType::i32, r.stream));
      write(buffers.back(), std::vector<std::int32_t>(i + 1, 1));
      works.push_back(r.group.all_reduce(buffers.back(), ReduceOp::sum));
    }
    for (std::size_t i = 0; i < 50; ++i) {
      works[i].wait();
      EXPECT_THAT(read<std::int32_t>(buffers[i], r.stream), Each(4));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

// All ranks may first send and then receive.
TEST_F(NcclGroupTest, MessagesDoNotWaitForEachOther) {
  const auto errors = run_gpu_ranks(4, [](GpuRank r) {
    const auto memory = r.group.allocate(64);
    const Buffer out = on_stream(memory.get(), 4, ElementType::i32, r.stream);
    const Buffer in = on_stream(memory.get() + 32, 4, ElementType::i32, r.stream);
    for (int round = 0; round < 3; ++round) {
      write(out, std::vector<std::int32_t>(4, 10 * r.rank + round));
      const Work sent = r.group.send(out, (r.rank + 1) % 4);
      const Work received = r.group.receive(in, (r.rank + 3) % 4);
      sent.wait();
      received.wait();
      EXPECT_THAT(read<std::int32_t>(in, r.stream), Each(10 * ((r.rank + 3) % 4) + round));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, HostMemoryGoesByTheHosts) {
  const auto errors = run_gpu_ranks(3, [](GpuRank r) {
    EXPECT_EQ(r.group.all_reduce_value<std::int64_t>(r.rank, ReduceOp::sum), 3);
    EXPECT_THAT(r.group.all_gather_text(std::string(static_cast<std::size_t>(r.rank), 'x')),
                ElementsAre("", "x", "xx"));
    EXPECT_EQ(r.group.broadcast_text("hello", 1), "hello");
    EXPECT_EQ(r.group.channel("norm").all_reduce_value<float>(1, ReduceOp::sum), 3);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, RejectsBuffersThatDoNotFit) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const auto memory = r.group.allocate(64);
    const Buffer four = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    const Buffer eight = on_stream(memory.get(), 8, ElementType::f32, r.stream);
    Buffer host = four;
    host.memory = Memory::host;
    EXPECT_THROW(r.group.reduce_scatter(four, eight, ReduceOp::sum), std::invalid_argument);
    EXPECT_THROW(r.group.all_gather(eight, four), std::invalid_argument);
    EXPECT_THROW(r.group.all_gather(host, eight), std::invalid_argument);
    EXPECT_THROW(r.group.broadcast(four, 2), std::invalid_argument);
    EXPECT_THROW(r.group.send(four, r.rank), std::invalid_argument);
    EXPECT_THROW(r.group.receive(four, -1), std::invalid_argument);
  });
  EXPECT_THAT(errors, Each(""));
}

// ---- streams

// The launch is far behind the call, so an event that was recorded too early would miss it.
TEST_F(NcclGroupTest, WaitsForTheLaunchBeforeItRecordsTheEnd) {
  fake::reset({.polls_in_progress = 50});
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    for (int round = 0; round < 5; ++round) {
      write(data, std::vector<float>(4, 1));
      r.group.all_reduce(data, ReduceOp::sum).wait();
      EXPECT_THAT(read<float>(data, r.stream), Each(2));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

// This proves that the fake would notice if the group did not order the streams.
TEST_F(NcclGroupTest, MissingWaitIsDetected) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    write(data, std::vector<float>(4, 1));
    const Work work = r.group.all_reduce(data, ReduceOp::sum);
    // It has ended long ago, but nothing says so to the stream.
    while (work.times().finished == Clock::time_point()) std::this_thread::sleep_for(1ms);
    read<float>(data, r.stream);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(expected_problems(),
              Contains(HasSubstr("a kernel that reads reads memory without waiting for "
                                 "ncclAllReduce of 4 elements")));
}

TEST_F(NcclGroupTest, WrongStreamIsDetected) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const TestStream other;
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    write(data, std::vector<float>(4, 1), other.get());
    r.group.all_reduce(data, ReduceOp::sum).wait();
    other.finish();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(expected_problems(),
              Contains(AllOf(HasSubstr("ncclAllReduce of 4 elements"),
                             HasSubstr("without waiting for a kernel that writes"))));
}

TEST_F(NcclGroupTest, AnotherStreamMayWait) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const TestStream other;
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    write(data, std::vector<float>(4, 1));
    r.group.all_reduce(data, ReduceOp::sum).wait_on(other.get());
    EXPECT_THAT(read<float>(data, other), Each(2));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, HostWaits) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    write(data, std::vector<float>(4, 1));
    r.group.all_reduce(data, ReduceOp::sum).wait_host();
    fake::touch("the host", range_of(data), false);
    EXPECT_EQ(*reinterpret_cast<const float*>(data.data), 2);
    // Polling leaves no error behind that the program would take for its own.
    EXPECT_EQ(device_calls().take_last_error(), cuda::kSuccess);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, WaitDoesNotBlockForASlowRank) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    write(data, std::vector<float>(4, 1));
    r.stream.finish();
    r.group.barrier().wait();
    if (r.rank == 1) fake::hold(1);
    r.group.all_reduce_value<float>(0, ReduceOp::sum);  // after the device is held
    const Work work = r.group.all_reduce(data, ReduceOp::sum);
    work.wait();
    EXPECT_FALSE(work.done());
    r.group.all_reduce_value<float>(0, ReduceOp::sum);
    if (r.rank == 1) fake::release(1);
    EXPECT_THAT(read<float>(data, r.stream), Each(2));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, BarrierWaitsOnTheHostForEarlierCollectives) {
  const auto errors = run_gpu_ranks(3, [](GpuRank r) {
    const auto memory = r.group.allocate(1000);
    const Buffer data = on_stream(memory.get(), 1000, ElementType::u8, r.stream);
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) works.push_back(r.group.all_reduce(data, ReduceOp::max));
    r.group.barrier("end of the epoch").wait();
    for (const auto& work : works) EXPECT_TRUE(work.done());
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclGroupTest, HoldsWhatTheCallerAsksForUntilTheEnd) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    auto held = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = held;
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    fake::hold(r.rank);
    const Work work = r.group.all_reduce(data, ReduceOp::sum, {}, std::move(held));
    work.wait();
    EXPECT_FALSE(watched.expired());
    fake::release(r.rank);
    while (!watched.expired()) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(work.done());
  });
  EXPECT_THAT(errors, Each(""));
}

// ---- channels

TEST_F(NcclGroupTest, ChannelsShareOneOrder) {
  const auto errors = run_gpu_ranks(4, [](GpuRank r) {
    Group& norm = r.group.channel("norm");
    EXPECT_EQ(&r.group.channel("norm"), &norm);
    EXPECT_EQ(norm.rank(), r.rank);
    const auto memory = r.group.allocate(64);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    const Buffer other = on_stream(memory.get() + 32, 4, ElementType::f32, r.stream);
    for (int round = 0; round < 20; ++round) {
      write(data, std::vector<float>(4, 1));
      write(other, std::vector<float>(4, 10));
      const Work work = r.group.all_reduce(data, ReduceOp::sum);
      norm.all_reduce(other, ReduceOp::sum).wait();
      work.wait();
      EXPECT_THAT(read<float>(other, r.stream), Each(40));
      EXPECT_THAT(read<float>(data, r.stream), Each(4));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

void call_in_different_orders(GpuRank r, std::size_t count, std::size_t other_count) {
  Group& norm = r.group.channel("norm");
  const auto memory = r.group.allocate(4096);
  const Buffer data = on_stream(memory.get(), count, ElementType::f32, r.stream);
  const Buffer other = on_stream(memory.get() + 2048, other_count, ElementType::f32, r.stream);
  const bool turned = r.rank == 1;
  Work first = turned ? norm.all_reduce(other, ReduceOp::sum, "layer 2")
                      : r.group.all_reduce(data, ReduceOp::sum, "bucket 0");
  Work second = turned ? r.group.all_reduce(data, ReduceOp::sum, "bucket 0")
                       : norm.all_reduce(other, ReduceOp::sum, "layer 2");
  first.wait_host();
  second.wait_host();
  // If the sizes are equal, the collectives end, with wrong data.
  r.group.barrier().wait();
  for (;;) {
    r.failures.throw_if_failed();
    std::this_thread::sleep_for(1ms);
  }
}

const auto kBothOrders =
    AllOf(HasSubstr("different orders on their GPUs"), HasSubstr("bucket 0"),
          HasSubstr("(layer 2)"), HasSubstr("on channel norm"),
          HasSubstr("all ranks must call the collectives of all channels in one order"));

TEST_F(NcclGroupTest, DifferentOrdersOfChannelsAreReported) {
  const auto errors = run_gpu_ranks(3, [](GpuRank r) { call_in_different_orders(r, 4, 100); });
  EXPECT_THAT(errors, Each(kBothOrders));
  expected_problems();  // none if the report came before the second launch
}

TEST_F(NcclGroupTest, DifferentOrdersOfEqualSizesAreReported) {
  const auto errors = run_gpu_ranks(3, [](GpuRank r) { call_in_different_orders(r, 4, 4); });
  EXPECT_THAT(errors, Each(kBothOrders));
  expected_problems();  // memory at different offsets
}

TEST_F(NcclGroupTest, CallHistoriesDifferIfOrdersDo) {
  std::array<std::uint64_t, 2> histories{};
  run_gpu_ranks(2, [&](GpuRank r) {
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    r.group.all_reduce(data, ReduceOp::sum).wait_host();
    const auto before = r.group.call_history();
    EXPECT_EQ(r.group.all_reduce_value<std::uint8_t>(r.rank == 0 ? 1 : 0, ReduceOp::max), 1);
    EXPECT_NE(r.group.call_history(), before);
    histories[static_cast<std::size_t>(r.rank)] = before;
  });
  EXPECT_EQ(histories[0], histories[1]);
}

// ---- memory

TEST_F(NcclGroupTest, AllocatesSlicesOfRegisteredMemory) {
  std::shared_ptr<std::byte> kept;
  const auto errors = run_gpu_ranks(2, [&](GpuRank r) {
    const auto a = r.group.allocate(5);
    const auto b = r.group.allocate(5000);
    const auto big = r.group.allocate(3 << 20);  // larger than a piece
    const auto empty = r.group.allocate(0);
    for (const auto& memory : {a, b, big, empty}) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 4096, 0U);
    }
    EXPECT_EQ(b.get() - a.get(), 4096);
    EXPECT_THAT(read<char>(on_stream(b.get(), 5000, ElementType::u8, r.stream), r.stream),
                Each('\0'));
    if (r.rank == 0) kept = a;
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(fake::leaks(), "1 allocations");
  kept.reset();  // after the group, whose memory it was
}

TEST_F(NcclGroupTest, UsesMemoryAgainThatNoRankUses) {
  fake::reset({.memory = (2 << 20) + (64 << 10)});  // for the group's own piece and one more
  // A launch that has ended holds its memory until the watchdog looks.
  const auto seldom = [](int, NcclOptions& options) { options.watch_interval = 50ms; };
  const auto body = [](GpuRank r) {
    for (int round = 0; round < 5; ++round) {
      const auto memory = r.group.allocate(1 << 20);
      const Buffer data = on_stream(memory.get(), 1 << 20, ElementType::u8, r.stream);
      EXPECT_THAT(read<char>(data.slice(77, 20), r.stream), Each('\0'));
      write(data, std::vector<char>(1 << 20, 'x'));
      r.stream.finish();
      // Rank 0's watchdog looks before the collective has ended, and then not for a while.
      if (r.rank == 1) std::this_thread::sleep_for(10ms);
      r.group.all_reduce(data, ReduceOp::max, "last use", memory).wait_host();
    }
  };
  EXPECT_THAT(run_gpu_ranks(2, body, seldom), Each(""));
}

TEST_F(NcclGroupTest, UsesMemoryAgainAfterTheProgramsKernels) {
  const auto body = [](GpuRank r) {
    {
      const auto memory = r.group.allocate(64);
      const Buffer data = on_stream(memory.get(), 16, ElementType::f32, r.stream);
      fake::hold(r.rank);
      fake::launch(r.stream.get(), "an update", {range_of(data)}, {}, [] {});
    }
    std::thread later([&] {
      std::this_thread::sleep_for(20ms);
      fake::release(r.rank);
    });
    const auto memory = r.group.allocate(64);  // otherwise a problem: its zeros overtake the update
    later.join();
    EXPECT_TRUE(memory);
  };
  EXPECT_THAT(run_gpu_ranks(2, body), Each(""));
}

TEST_F(NcclGroupTest, OutOfMemoryIsReportedOnAllRanks) {
  fake::reset({.memory = 4 << 20});
  const auto errors = run_gpu_ranks(3, [](GpuRank r) {
    std::shared_ptr<std::byte> own;
    if (r.rank == 1) own = device_memory(2 << 20);
    r.group.allocate(1 << 20);
    const auto memory = r.group.allocate((3 << 19) + 1);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1 cannot allocate 1576960 bytes on the GPU"),
                                 HasSubstr("unhandled cuda error"))));
}

TEST_F(NcclGroupTest, DifferentSizesOfMemoryAreReported) {
  const auto errors = run_gpu_ranks(3, [](GpuRank r) { r.group.allocate(r.rank == 2 ? 9000 : 1); });
  EXPECT_THAT(errors, Each(HasSubstr("different amounts of memory on their GPUs, 4096 to 12288")));
}

TEST_F(NcclGroupTest, WorksWithoutWindows) {
  fake::reset({.windows = false});
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const auto memory = r.group.allocate(16);
    const Buffer data = on_stream(memory.get(), 4, ElementType::i32, r.stream);
    r.group.all_reduce(data, ReduceOp::sum).wait_host();
  });
  EXPECT_THAT(errors, Each(""));
}

// ---- times

// Rank 1 comes 50 ms later, but the clock of the GPUs has passed 7 ms.
TEST_F(NcclGroupTest, TimesAreThoseOfTheGpu) {
  fake::reset({.clock_stands = true});
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const auto memory = r.group.allocate(64);
    const Buffer data = on_stream(memory.get(), 4, ElementType::f32, r.stream);
    r.group.all_reduce(data, ReduceOp::sum).wait_host();
    if (r.rank == 1) {
      std::this_thread::sleep_for(50ms);
      fake::pass(7);
    }
    const Work work = r.group.all_reduce(data, ReduceOp::sum);
    work.wait_host();
    const auto expected = r.rank == 0 ? 7ms : 0ms;
    const auto duration = [&] { return work.times().finished - work.times().started; };
    for (int i = 0; i < 1000 && duration() != expected; ++i) std::this_thread::sleep_for(5ms);
    EXPECT_EQ(duration(), expected) << r.rank;
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace ddp::comm::test

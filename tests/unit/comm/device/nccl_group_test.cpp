// SPDX-License-Identifier: Apache-2.0
// What a group of NCCL does beyond the contract of all groups: its types, its one order of
// launches, its memory, and the times of the GPU.
#include "ddp_runtime/comm/device/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using namespace std::chrono_literals;

class NcclGroupTest : public GpuTest {};

TEST_F(NcclGroupTest, RefusesInt16) {
  run_on_gpus(2, [](GpuRank r) {
    EXPECT_EQ(r.group.backend(), "nccl");
    EXPECT_EQ(r.group.split(r.rank)->backend(), "nccl");
    const Numbers<std::int16_t> data(r, 4);
    EXPECT_THAT(error_of([&] { r.group.all_reduce(data.buffer, ReduceOp::sum); }),
                HasSubstr("NCCL has no 16-bit integers"));
    EXPECT_THAT(error_of([&] { r.group.send(data.buffer, 1 - r.rank); }),
                HasSubstr("NCCL has no 16-bit integers"));
  });
}

TEST_F(NcclGroupTest, WaitDoesNotBlockForASlowRank) {
  run_on_gpus(2, [](GpuRank r) {
    const Numbers data(r, r.group.allocate(16), 4);
    data.fill(1);
    r.stream.finish();
    r.group.barrier().wait();
    if (r.rank == 1) fake::hold(1);
    r.group.all_reduce_value<float>(0, ReduceOp::sum);  // after the device is held
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    work.wait();
    EXPECT_FALSE(work.done());
    r.group.all_reduce_value<float>(0, ReduceOp::sum);
    if (r.rank == 1) fake::release(1);
    EXPECT_THAT(data.get(), Each(2));
  });
}

// ---- one order

[[noreturn]] void wait_for_a_failure(const GpuRank& r) {
  for (;;) {
    r.failures.throw_if_failed();
    std::this_thread::sleep_for(1ms);
  }
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
  wait_for_a_failure(r);
}

TEST_F(NcclGroupTest, DifferentOrdersOfChannelsAreReported) {
  for (const std::size_t other_count : {100, 4}) {
    fake::reset();
    const auto errors =
        run_gpu_ranks(3, [=](GpuRank r) { call_in_different_orders(r, 4, other_count); });
    EXPECT_THAT(
        errors,
        Each(AllOf(HasSubstr("different orders on their GPUs"), HasSubstr("bucket 0"),
                   HasSubstr("(layer 2)"), HasSubstr("on channel norm"),
                   HasSubstr("all ranks must call the collectives of all channels in one order"))));
    expected_problems();  // none if the report came before the second launch
  }
}

TEST_F(NcclGroupTest, DifferentOrdersInAPartAreReported) {
  fake::reset({.collectives_at_once = 2});
  const auto errors = run_gpu_ranks(4, [](GpuRank r) {
    Group& part = *r.group.split(r.rank % 2, 0, r.rank % 2 == 1 ? "odd" : "even");
    const Numbers data(r, 100);
    const Numbers more(r, 200);
    if (r.rank % 2 == 1) {
      const bool first = r.rank == 1;
      part.all_reduce(first ? data.buffer : more.buffer, ReduceOp::sum, first ? "data" : "more");
      part.all_reduce(first ? more.buffer : data.buffer, ReduceOp::sum, first ? "more" : "data");
      part.barrier().wait();
    }
    wait_for_a_failure(r);
  });
  EXPECT_THAT(errors, Each(ContainsRegex(
                          "ranks 1 and 3 launched collectives of group 'odd' \\(ranks 1 and "
                          "3\\) in different orders on their GPUs: in launch 0, rank . "
                          "started all_reduce of sum of .00 float32 \\((data|more)\\), but")));
  expected_problems();  // none if the report came before the second launch
}

TEST_F(NcclGroupTest, RankOutsideAPartLearnsThatItCannotStart) {
  fake::reset({.id_error = nccl::kSystemError, .ids = 1});
  const auto errors = run_gpu_ranks(3, [](GpuRank r) {
    r.group.split(r.rank == 0 ? -1 : 0, 0, "workers");
    wait_for_a_failure(r);
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 cannot create an id for NCCL")));
}

// ---- memory

TEST_F(NcclGroupTest, AllocatesSlicesOfRegisteredMemory) {
  run_on_gpus(2, [](GpuRank r) {
    const auto a = r.group.allocate(5);
    const auto b = r.group.allocate(5000);
    const auto big = r.group.allocate(3 << 20);  // larger than a piece
    const auto empty = r.group.allocate(0);
    for (const auto& memory : {a, b, big, empty}) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 4096, 0U);
    }
    EXPECT_EQ(b.get() - a.get(), 4096);
  });
}

TEST_F(NcclGroupTest, UsesMemoryAgainThatNoRankUses) {
  fake::reset({.memory = (2 << 20) + (64 << 10)});  // for the group's own piece and one more
  // A launch that has ended holds its memory until the watchdog looks.
  const auto seldom = [](int, NcclOptions& options) { options.watch_interval = 50ms; };
  const auto body = [](GpuRank r) {
    for (int round = 0; round < 5; ++round) {
      const Numbers<char> data(r, r.group.allocate(1 << 20), 1 << 20);
      EXPECT_THAT(read<char>(data.buffer.slice(77, 20), r.stream), Each('\0'));
      data.fill('x');
      r.stream.finish();
      // Rank 0's watchdog looks before the collective has ended, and then not for a while.
      if (r.rank == 1) std::this_thread::sleep_for(10ms);
      r.group.all_reduce(data.buffer, ReduceOp::max, "last use", data.memory).wait_host();
    }
  };
  run_on_gpus(2, body, seldom);
}

TEST_F(NcclGroupTest, UsesMemoryAgainAfterTheProgramsKernels) {
  run_on_gpus(2, [](GpuRank r) {
    {
      const Numbers data(r, r.group.allocate(64), 16);
      fake::hold(r.rank);
      fake::launch(r.stream.get(), "an update", {range_of(data.buffer)}, {}, [] {});
    }
    std::thread later([&] {
      std::this_thread::sleep_for(20ms);
      fake::release(r.rank);
    });
    const auto memory = r.group.allocate(64);  // otherwise a problem: its zeros overtake the update
    later.join();
    EXPECT_TRUE(memory);
  });
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
  run_on_gpus(2, [](GpuRank r) {
    const Numbers data(r, r.group.allocate(16), 4);
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait_host();
  });
}

// ---- times

// Rank 1 comes 50 ms later, but the clock of the GPUs has passed 7 ms.
TEST_F(NcclGroupTest, TimesAreThoseOfTheGpu) {
  fake::reset({.clock_stands = true});
  run_on_gpus(2, [](GpuRank r) {
    const Numbers data(r, r.group.allocate(64), 4);
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait_host();
    if (r.rank == 1) {
      std::this_thread::sleep_for(50ms);
      fake::pass(7);
    }
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    work.wait_host();
    const auto expected = r.rank == 0 ? 7ms : 0ms;
    const auto duration = [&] { return work.times().finished - work.times().started; };
    for (int i = 0; i < 1000 && duration() != expected; ++i) std::this_thread::sleep_for(5ms);
    EXPECT_EQ(duration(), expected) << r.rank;
  });
}

}  // namespace
}  // namespace ddp::comm::test

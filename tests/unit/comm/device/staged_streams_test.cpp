// SPDX-License-Identifier: Apache-2.0
// What waits for what when GPU memory goes through the host.
#include "tests/unit/comm/device/staged_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace ddp::comm::test {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using namespace std::chrono_literals;

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

// Also if there is nothing to copy, because there is no other rank.
TEST_F(StagedGroupTest, AnotherStreamMayWait) {
  for (const int ranks : {1, 2}) {
    const auto errors = run_staged_ranks(ranks, [=](GpuRank r) {
      const TestStream other;
      const OnGpu data(r, 4);
      fill(data, 1);
      r.group.all_reduce(data.buffer, ReduceOp::sum).wait_on(other.get());
      EXPECT_THAT(read<float>(data.buffer, other), Each(ranks));
      r.group.broadcast(data.buffer, 0).wait_on(other.get());
      EXPECT_THAT(read<float>(data.buffer, other), Each(ranks));
    });
    EXPECT_THAT(errors, Each(""));
  }
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

}  // namespace
}  // namespace ddp::comm::test

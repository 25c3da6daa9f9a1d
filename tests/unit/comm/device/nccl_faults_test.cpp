// SPDX-License-Identifier: Apache-2.0
// Tests what a group of NCCL does after an error of NCCL or of a GPU, and when a collective does
// not end, beyond the contract of all groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "ddp_runtime/comm/device/nccl_group.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

class NcclFaultsTest : public GpuTest {};

TEST_F(NcclFaultsTest, StreamsThatWaitAreReleasedAfterAFailure) {
  std::atomic<bool> waiting{false};
  const auto errors = run_gpu_ranks(2, [&](GpuRank r) {
    const Numbers data(r, r.group.allocate(64), 4);
    if (r.rank == 1) {
      while (!waiting) std::this_thread::sleep_for(1ms);
      throw std::runtime_error("the disk is full");
    }
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait();
    waiting = true;
    r.stream.finish();  // as cudaStreamSynchronize would
    EXPECT_TRUE(r.failures.failed());
    EXPECT_THROW(r.group.all_reduce(data.buffer, ReduceOp::sum), PeerFailure);
  });
  EXPECT_THAT(errors, ElementsAre("", "the disk is full"));
}

// The error is reported only when the group is gone.
TEST_F(NcclFaultsTest, ExceptionMayDestroyTheGroup) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    NcclOptions options = quick_options();
    options.device = r.rank;
    NcclGroup inner(r.host, r.failures, options);
    const Numbers data(r, inner.allocate(16), 4);
    if (r.rank == 1) throw std::runtime_error("the disk is full");
    inner.all_reduce(data.buffer, ReduceOp::sum, {}, {}).wait_host();
  });
  EXPECT_THAT(errors, Each("the disk is full"));
}

TEST_F(NcclFaultsTest, ErrorOfNcclsThreadsEndsAll) {
  fake::reset({.async_error = {{1, nccl::kRemoteError}}, .fail_after = 5});
  const auto errors = run_gpu_ranks(3, [](GpuRank r) {
    const Numbers data(r, r.group.allocate(64), 4);
    for (;;) r.group.all_reduce(data.buffer, ReduceOp::sum).wait_host();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("NCCL cannot "), HasSubstr("network error"),
                                 HasSubstr("fake: what NCCL says"),
                                 HasSubstr("another rank exited, or the network failed"))));
}

TEST_F(NcclFaultsTest, CollectiveThatDoesNotEndIsReported) {
  fake::reset({.never_completes = 3});
  const auto errors = run_gpu_ranks(
      2,
      [](GpuRank r) {
        const Numbers data(r, r.group.allocate(64), 4);
        for (int i = 0; i < 5; ++i) r.group.all_reduce(data.buffer, ReduceOp::sum, "bucket 7");
        r.group.barrier().wait();
      },
      [](int, NcclOptions& options) {
        options.limits.timeout = 1s;
        options.limits.report_after = 100ms;
      });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("has waited 1.0 s for all_reduce #"),
                                 HasSubstr("(bucket 7) on its GPU"))));
}

TEST_F(NcclFaultsTest, EarlierWorkOfTheProgramThatDoesNotEndIsReported) {
  const auto body = [](GpuRank r) {
    const Numbers data(r, r.group.allocate(64), 4);
    r.group.barrier().wait_host();
    if (r.rank == 1) fake::hold(1);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum, "bucket 7");
    const std::string error = error_of([&] { work.wait_host(); });
    const auto snapshot = r.host.flight_recorder().snapshot();
    ASSERT_EQ(snapshot.stuck_in().size(), 1U);
    EXPECT_THAT(snapshot.stuck_in().front()->what, HasSubstr("bucket 7"));
    EXPECT_EQ(snapshot.stuck_in().front()->on_gpu, r.rank == 1 ? OnGpu::held : OnGpu::running)
        << r.rank;
    if (r.rank == 1) fake::release(1);
    throw RuntimeError(error);
  };
  const auto errors = run_gpu_ranks(2, body, [](int rank, NcclOptions& options) {
    if (rank == 1) options.limits.timeout = 1s;
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("rank 1 has waited 1.0 s for earlier work of this program to "
                                   "end, so that all_reduce #"),
                         HasSubstr("(bucket 7) can start on its GPU"))));
}

// The watchdog does not wait for it any longer then.
TEST_F(NcclFaultsTest, LaunchThatComesBackLateFailsToo) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const Numbers data(r, r.group.allocate(64), 4);
    r.group.barrier().wait_host();
    r.host.barrier().wait();
    if (r.rank == 1) {
      while (fake::threads_in_calls() == 0) std::this_thread::sleep_for(1ms);
      throw std::runtime_error("the disk is full");
    }
    fake::block_calls(0);
    const Work late = r.group.all_reduce(data.buffer, ReduceOp::sum, {}, data.memory);
    const Work queued = r.group.all_reduce(data.buffer, ReduceOp::sum, {}, data.memory);
    EXPECT_EQ(error_of([&] { queued.wait_host(); }), "the disk is full");
    fake::unblock_calls();
    EXPECT_THROW(late.wait_host(), RuntimeError);
  });
  EXPECT_THAT(errors, ElementsAre("", "the disk is full"));
  EXPECT_EQ(fake::aborts(), 2);
}

const auto kIllegalAccess =
    AllOf(HasSubstr("the GPU cannot"), HasSubstr("an illegal memory access was encountered (700)"));

TEST_F(NcclFaultsTest, EarlierErrorOfTheProgramIsNotBlamedOnNccl) {
  const auto errors = run_gpu_ranks(2, [](GpuRank r) {
    const Numbers data(r, r.group.allocate(64), 4);
    if (r.rank == 1) fake::break_device(1, 700);
    r.group.all_reduce(data.buffer, ReduceOp::sum, "bucket 2").wait_host();
  });
  // The watchdog may find it first, in an earlier collective.
  EXPECT_THAT(errors,
              Each(AllOf(kIllegalAccess, HasSubstr("work of this program failed on the GPU"))));
}

}  // namespace
}  // namespace ddp::comm::test

// SPDX-License-Identifier: Apache-2.0
// The start, the end and errors of a group that goes through the host, beyond the contract of all
// groups.
#include "tests/unit/comm/device/staged_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// ---- memory of the GPU

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

// The error is reported only when the group is gone, so this rank cannot wait for the others.
TEST_F(StagedGroupTest, ExceptionMayDestroyTheGroup) {
  const auto errors = run_staged_ranks(2, [](GpuRank r) {
    NcclOptions options = quick_options();
    options.device = r.rank;
    const Numbers data(r, 100);
    data.fill(1);
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
    const Numbers data(r, 4);
    data.fill(1);
    r.group.all_reduce(data.buffer, ReduceOp::sum, "bucket 2").wait_host();
  });
  EXPECT_THAT(errors, Each("rank 1 cannot send the data of all_reduce #0 (bucket 2) from GPU 1 "
                           "(0000:02:00.0) through the host, because this or other work of the "
                           "program failed: the GPU cannot copy data to the host "
                           "(cudaMemcpyAsync): fake trouble (1)"));
}

TEST_F(StagedGroupTest, CopyThatDoesNotEndIsReported) {
  const auto errors = run_staged_ranks(2,
                                       [](GpuRank r) {
                                         const Numbers data(r, 4);
                                         data.fill(1);
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
    const Numbers data(r, 4000);
    data.fill(1);
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
  run_staged(4,
             [](GpuRank r) { EXPECT_EQ(dynamic_cast<StagedGroup&>(r.group).device(), r.rank % 2); },
             {.change = by_default});
}

}  // namespace
}  // namespace ddp::comm::test

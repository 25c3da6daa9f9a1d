// SPDX-License-Identifier: Apache-2.0
// Starts of a group of GPUs that fail: each rank must get one sentence that says why.
#include "ddp_runtime/comm/device/nccl_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/errors.h"
#include "tests/unit/comm/device/gpu_ranks.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using namespace std::chrono_literals;

class NcclStartTest : public GpuTest {};

std::vector<std::string> start_errors(int ranks,
                                      const std::function<void(int, NcclOptions&)>& change = {}) {
  return run_gpu_ranks(
      ranks, [](GpuRank) { FAIL() << "the group has started"; }, change);
}

TEST_F(NcclStartTest, SaysWhatIsMissing) {
  fake::reset({.driver_version = 0});
  EXPECT_THAT(start_errors(2),
              Each(AllOf(HasSubstr("the NCCL backend cannot start (all 2 ranks, the first on "
                                   "node1): this machine has no NVIDIA driver"),
                         HasSubstr("use --device cpu"))));
  fake::reset({.driver_version = 12040});
  EXPECT_THAT(start_errors(2), Each(AllOf(HasSubstr("supports CUDA 12.4"),
                                          HasSubstr("is CUDA 13.0; update the driver"))));
  fake::reset({.devices = 0});
  EXPECT_THAT(start_errors(1), Each(HasSubstr("this process sees no GPU; request one")));
  fake::reset({.devices = 1});
  EXPECT_THAT(start_errors(2),
              Each(HasSubstr("cannot start (rank 1 on node1): this process sees 1 GPU, but needs "
                             "the one with number 1")));
  fake::reset({.nccl_version = 21003});
  EXPECT_THAT(start_errors(1),
              Each(AllOf(HasSubstr("NCCL 2.10.3 in "), HasSubstr("is older than 2.18.1"))));
}

TEST_F(NcclStartTest, SaysWhereItLookedForALibrary) {
  const auto no_file = [](int rank, NcclOptions& options) {
    if (rank == 1) options.nccl_library = "/does/not/exist.so";
  };
  EXPECT_THAT(start_errors(2, no_file),
              Each(AllOf(HasSubstr("rank 1 on node1"), HasSubstr("NCCL cannot be loaded"),
                         HasSubstr("/does/not/exist.so"))));
}

TEST_F(NcclStartTest, RefusesTwoRanksOnOneGpu) {
  const auto shared = [](int rank, NcclOptions& options) { options.device = rank / 2; };
  EXPECT_THAT(start_errors(4, shared),
              Each(HasSubstr("ranks 0 and 1 on node1 both use the GPU 0000:01:00.0")));
  // The same address on another node is another GPU.
  const auto two_nodes = [](int rank, NcclOptions& options) {
    options.device = rank;
    options.node = "node" + std::to_string(rank);
  };
  EXPECT_THAT(run_gpu_ranks(
                  2, [](GpuRank) {}, two_nodes),
              Each(""));
}

TEST_F(NcclStartTest, RanksOfANodeTakeItsGpusInTurns) {
  const auto by_default = [](int, NcclOptions& options) { options.device.reset(); };
  EXPECT_THAT(
      run_gpu_ranks(
          3, [](GpuRank r) { EXPECT_EQ(dynamic_cast<NcclGroup&>(r.group).device(), r.rank); },
          by_default),
      Each(""));
  fake::reset({.devices = 2});
  EXPECT_THAT(start_errors(3, by_default),
              Each(HasSubstr("ranks 0 and 2 on node1 both use the GPU 0000:01:00.0; request one "
                             "GPU per task with --gpus-per-task=1, start fewer tasks")));
}

TEST_F(NcclStartTest, ErrorOfThePreparationReachesAllRanks) {
  const auto without_cuda = [](int rank, NcclOptions& options) {
    if (rank == 1) options.prepare = [] { throw UsageError("this PyTorch has no CUDA"); };
  };
  EXPECT_THAT(start_errors(3, without_cuda),
              Each(HasSubstr("cannot start (rank 1 on node1): this PyTorch has no CUDA")));
}

TEST_F(NcclStartTest, RefusesBlockingCommunicators) {
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  EXPECT_THAT(start_errors(2), Each(HasSubstr("NCCL_COMM_BLOCKING=1 makes collectives that cannot "
                                              "be ended when a rank fails; unset it")));
  unsetenv("NCCL_COMM_BLOCKING");
}

TEST_F(NcclStartTest, StartHasATimeLimit) {
  fake::reset({.init_never_completes = 1});
  EXPECT_THAT(start_errors(2, [](int, NcclOptions& options) { options.start_timeout = 200ms; }),
              Each(AllOf(HasSubstr("NCCL did not connect the GPUs of 2 ranks within 0.2 s"),
                         HasSubstr("NCCL_SOCKET_IFNAME is not set"))));
}

TEST_F(NcclStartTest, WithoutAnIdNoRankStarts) {
  fake::reset({.id_error = nccl::kSystemError});
  EXPECT_THAT(start_errors(3), Each(AllOf(HasSubstr("rank 0 cannot create an id for NCCL: "),
                                          HasSubstr("check the network interfaces of its node and "
                                                    "NCCL_SOCKET_IFNAME"))));
}

TEST_F(NcclStartTest, ErrorOnOneRankEndsTheStart) {
  fake::reset({.init_error = {{2, nccl::kSystemError}}});
  EXPECT_THAT(start_errors(3), Each(AllOf(HasSubstr("NCCL cannot connect the GPUs"),
                                          HasSubstr("unhandled system error"),
                                          HasSubstr("check the network and /dev/shm"))));
}

// Another rank may have been killed.
TEST_F(NcclStartTest, RemoteErrorWhileConnectingIsASymptom) {
  fake::reset({.init_error = {{1, nccl::kRemoteError}}});
  Symptom symptom = Symptom::none;
  const auto open = [&](int rank, Group& host, FailureState& failures) {
    NcclOptions options = quick_options();
    options.device = rank;
    try {
      return std::make_unique<NcclGroup>(host, failures, options);
    } catch (const std::exception&) {
      if (rank == 1) symptom = failures.failure().value().symptom;
      throw;
    }
  };
  EXPECT_THAT(run_ranks_on_gpus(2, open, [](GpuRank) {}), Each(HasSubstr("cannot connect")));
  EXPECT_EQ(symptom, Symptom::remote_error);
}

TEST_F(NcclStartTest, StartProvesThatDataArrives) {
  fake::reset({.corrupts = true});
  EXPECT_THAT(start_errors(2), Each(HasSubstr("the GPUs of 2 ranks exchanged wrong data: the sum "
                                              "of ones is 6")));
  fake::reset({.never_completes = 0});
  EXPECT_THAT(
      start_errors(2, [](int, NcclOptions& options) { options.start_timeout = 200ms; }),
      Each(ContainsRegex(
          "NCCL did not (connect|exchange data between) the GPUs of 2 ranks within 0.2 s")));
}

TEST(StartProblem, ComparesTheRanks) {
  const RankFacts good{.nccl_version = 22809, .node = "a", .gpu = "1"};
  std::vector<RankFacts> ranks(3, good);
  ranks[1].gpu = "2";
  ranks[2].node = "b";
  EXPECT_FALSE(find_start_problem(ranks));

  ranks[2].gpu = ranks[0].gpu;
  ranks[2].node = ranks[0].node;
  EXPECT_THAT(find_start_problem(ranks)->text, HasSubstr("ranks 0 and 2 on a both use"));
  for (auto& rank : ranks) rank.shares_gpus = true;
  EXPECT_FALSE(find_start_problem(ranks));

  ranks[1].nccl_version = 22704;
  EXPECT_THAT(find_start_problem(ranks)->text,
              HasSubstr("rank 0 on a has NCCL 2.28.9, but rank 1 on a has NCCL 2.27.4"));

  ranks[1].error = "no driver";
  ranks[2].error = "no file";
  const auto problem = find_start_problem(ranks);
  EXPECT_EQ(problem->text,
            "the NCCL backend cannot start (2 of 3 ranks, the first is rank 1 on a): no driver");
  EXPECT_FALSE(problem->is_usage_error);
}

TEST(ReasonAgainstNccl, IsASharedGpu) {
  std::vector<RankFacts> ranks(4, {.node = "a", .gpu = "1"});
  ranks[1].gpu = "2";
  ranks[2].node = "b";
  ranks[3] = {.node = "b", .gpu = "2"};
  EXPECT_FALSE(reason_against_nccl(ranks));

  ranks[3].gpu = "1";
  EXPECT_EQ(reason_against_nccl(ranks),
            "ranks 2 and 3 on b both use the GPU 1, which NCCL refuses");
  ranks[1].error = "no NCCL";  // its start reports that
  EXPECT_FALSE(reason_against_nccl(ranks));
  ranks[1].error.clear();
  for (auto& rank : ranks) rank.shares_gpus = true;  // the user asks NCCL to allow it
  EXPECT_FALSE(reason_against_nccl(ranks));
}

}  // namespace
}  // namespace ddp::comm::test

// SPDX-License-Identifier: Apache-2.0
// The parts of ddp-run that turn words of SLURM into facts, and facts into commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "ddp_runtime/comm/ddp_run/run_memory.h"
#include "ddp_runtime/elastic/run/launcher.h"
#include "ddp_runtime/elastic/run/node_checks.h"
#include "ddp_runtime/elastic/run/node_watch.h"
#include "ddp_runtime/elastic/run/run_environment.h"

namespace ddp::elastic {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

LaunchPlan plan_of_srun() {
  LaunchPlan plan;
  plan.kind = LauncherKind::srun;
  plan.ranks_per_node = 2;
  plan.options = {"--mpi=pmix"};
  plan.allocation = {"n1", "n2", "n3"};
  plan.agent = "/opt/ddp-run";
  plan.program = {"train", "a b"};
  return plan;
}

TEST(Commands, OfSrunNameNodesThatAreInItsOrder) {
  const auto commands = commands_for(plan_of_srun(), {3, {"n1", "n3"}, {}});
  ASSERT_EQ(commands.size(), 1U);
  const auto& command = commands.front();
  EXPECT_THAT(command.arguments, Contains("--ntasks=4"));
  EXPECT_THAT(command.arguments, Contains("--nodes=2"));
  EXPECT_THAT(command.arguments, Contains("--ntasks-per-node=2"));
  EXPECT_THAT(command.arguments, Contains("--nodelist=n[1,3]"));
  EXPECT_THAT(command.hostfile, IsEmpty());
  EXPECT_EQ(command.variables.at(kGenerationVariable), "3");
  EXPECT_EQ(command.variables.at("SLURM_PMIX_FENCE"), "ring");
  const std::vector<std::string> end(command.arguments.end() - 6, command.arguments.end());
  EXPECT_THAT(end, ElementsAre("--mpi=pmix", "/opt/ddp-run", "task", "--", "train", "a b"));
}

TEST(Commands, SayWhetherTheStartIsOnlyToSave) {
  for (const auto kind : {LauncherKind::srun, LauncherKind::mpirun, LauncherKind::direct}) {
    auto plan = plan_of_srun();
    plan.kind = kind;
    for (const bool save : {false, true}) {
      for (const auto& command : commands_for(plan, {3, {"n1"}, {}, save})) {
        EXPECT_EQ(command.variables.contains(comm::kRunSaveVariable), save);
      }
    }
  }
}

// The spare n1 has taken the place of n3, and gets its ranks.
TEST(Commands, OfSrunGiveAReplacementTheRanksOfItsNode) {
  const auto command = commands_for(plan_of_srun(), {2, {"n2", "n1"}, {}}).front();
  EXPECT_THAT(command.arguments, Contains("--distribution=arbitrary"));
  EXPECT_THAT(command.arguments, Not(Contains(HasSubstr("--nodelist"))));
  EXPECT_EQ(command.hostfile, "n2\nn2\nn1\nn1\n");
}

TEST(Commands, WithoutALauncherNumberTheRanks) {
  auto plan = plan_of_srun();
  plan.kind = LauncherKind::direct;
  const auto commands = commands_for(plan, {4, {"n1"}, {}});
  ASSERT_EQ(commands.size(), 2U);
  for (std::size_t rank = 0; rank < commands.size(); ++rank) {
    const auto& variables = commands[rank].variables;
    EXPECT_EQ(variables.at("RANK"), std::to_string(rank));
    EXPECT_EQ(variables.at(kRankVariable), std::to_string(rank));
    EXPECT_EQ(variables.at("WORLD_SIZE"), "2");
    EXPECT_EQ(variables.at("TORCHELASTIC_RESTART_COUNT"), "3");
    EXPECT_EQ(variables.at("MASTER_PORT"), commands[0].variables.at("MASTER_PORT"));
  }
}

TEST(NodeChecks, AreJudgedByTheVerdictOfTheCheck) {
  EXPECT_TRUE(judge_check("a", "OK\n\nddp-run-verdict 0\n", true, true).healthy);
  EXPECT_TRUE(judge_check("a", "WARNING\n\nddp-run-verdict 1\n", true, true).healthy);
  const auto critical = judge_check("a", "CRITICAL memory.ecc\n\nddp-run-verdict 2\n", true, true);
  EXPECT_FALSE(critical.healthy);
  EXPECT_EQ(critical.finding, "ddp-check: CRITICAL memory.ecc");
  // srun itself has failed.
  const auto failed = judge_check("a", "srun: error: Unable to create step\n", true, true);
  EXPECT_FALSE(failed.healthy);
  EXPECT_EQ(failed.finding, "its check could not start: srun: error: Unable to create step");
  EXPECT_FALSE(failed.unknown);
  EXPECT_EQ(judge_check("a", "", false, true).finding, "its check did not end in time");
}

TEST(NodeChecks, SayNothingOfANodeIfSlurmctldDoesNotAnswer) {
  for (const bool in_time : {false, true}) {
    const auto unknown = judge_check("a", "srun: error: Socket timed out\n", in_time, false);
    EXPECT_TRUE(unknown.unknown);
    EXPECT_FALSE(unknown.healthy);
    EXPECT_EQ(unknown.finding, "not checked, because slurmctld does not answer");
  }
  const auto critical = judge_check("a", "CRITICAL x\n\nddp-run-verdict 2\n", true, false);
  EXPECT_FALSE(critical.unknown) << "the check has run";
  EXPECT_FALSE(critical.healthy);
}

TEST(NodeWatch, TakesOnlyNodesThatCanStartAStep) {
  EXPECT_THAT(usable_nodes("a idle\nb mixed \nc down*\nd allocated*\ne draining\nf allocated\n"
                           "g completing\nh\n"),
              ElementsAre("a", "b", "f", "g"));
}

// Programs in the place of squeue and sinfo, by PATH, as long as the test.
class FakeSlurm {
 public:
  FakeSlurm() {
    directory_ =
        std::filesystem::temp_directory_path() / ("fake_slurm_" + std::to_string(getpid()));
    std::filesystem::create_directory(directory_);
    setenv("PATH", (directory_.string() + ":" + path_).c_str(), 1);
  }
  FakeSlurm(const FakeSlurm&) = delete;
  FakeSlurm& operator=(const FakeSlurm&) = delete;
  ~FakeSlurm() {
    setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(directory_);
  }
  void runs(const std::string& program, const std::string& script) const {
    const auto file = directory_ / program;
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }

 private:
  std::string path_ = std::getenv("PATH");
  std::filesystem::path directory_;
};

TEST(NodeWatch, LosesANodeThatIsUpButNoLongerInTheJob) {
  const FakeSlurm slurm;
  slurm.runs("squeue", "echo 'RUNNING n[1,3]'");
  slurm.runs("sinfo", R"(case "$*" in *4*) echo n4 idle;; esac; echo n1 mixed; echo n3 down)");
  NodeWatch watch({"n1", "n3", "n4"}, "7", std::chrono::seconds(0));
  std::vector<std::string> lost;
  std::vector<std::string> up;
  for (int i = 0; i < 500 && up.size() < 4; ++i) {  // it looks again and again
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (const auto& event : watch.take()) {
      if (const auto* one = std::get_if<NodeLost>(&event)) lost.push_back(one->node);
      if (const auto* one = std::get_if<NodeUp>(&event)) up.push_back(one->node);
    }
  }
  EXPECT_THAT(lost, ElementsAre("n4"));
  EXPECT_THAT(up, Contains("n1"));
  EXPECT_THAT(up, Not(Contains("n4")));
}

TEST(NodesOfJob, AreKnownWhileItRuns) {
  EXPECT_EQ(nodes_of_job("RUNNING n[1-2]\n"), (std::vector<std::string>{"n1", "n2"}));
  for (const auto* other : {"", "\n", "COMPLETING n2\n", "PENDING \n", "SUSPENDED n[2-3]\n",
                            "RUNNING\n", "RUNNING n[2-\n", "slurm_load_jobs error: n2\n"}) {
    EXPECT_EQ(nodes_of_job(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace ddp::elastic

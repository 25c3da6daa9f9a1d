// SPDX-License-Identifier: Apache-2.0
// TF_CONFIG lists every worker in rank order, or an error gives the reason why that is impossible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fake_environment.h"
#include "tests/unit/error_of.h"

namespace ddp::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string problem_of(const Variables& variables) {
  return error_of([&] { slurm_plan(variables, asked("tf_config")); });
}

TEST(TfConfig, ListsAllWorkersByRank) {
  const auto variables = merged(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "20086-20088"}});
  const auto json =
      nlohmann::json::parse(value_in(slurm_plan(variables, asked("tf_config")), "TF_CONFIG"));
  EXPECT_THAT(json.at("cluster").at("worker").get<std::vector<std::string>>(),
              ElementsAre("p1:20087", "p1:20088", "p2:20087", "p2:20088"));
  EXPECT_EQ(json.at("task").at("type"), "worker");
  EXPECT_EQ(json.at("task").at("index"), 2);
  EXPECT_EQ(slurm_plan(variables).find("TF_CONFIG"), nullptr) << "only on request";
}

TEST(TfConfig, FollowsTheOrderOfRanks) {
  const auto variables =
      merged(two_by_two(),
             {{"SLURM_DISTRIBUTION", "cyclic"}, {"SLURM_PROCID", "1"}, {"SLURM_GTIDS", "1,3"}});
  EXPECT_THAT(problem_of(variables), HasSubstr("add order=packed"));
  const auto json = nlohmann::json::parse(
      value_in(slurm_plan(variables, asked("tf_config,order=packed")), "TF_CONFIG"));
  EXPECT_EQ(json.at("task").at("index"), 2);
  EXPECT_EQ(json.at("cluster").at("worker").size(), 4U);
}

TEST(TfConfig, OneTaskPerNodeIsInOrderForAnyDistribution) {
  // The variables that SLURM sets for `srun -n2` in an allocation of two nodes.
  const Variables one_each = {{"SLURM_DISTRIBUTION", "cyclic"},
                              {"SLURM_STEP_NUM_TASKS", "2"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_GTIDS", "1"}};
  EXPECT_EQ(problem_of(merged(two_by_two(), one_each)), "");
  EXPECT_THAT(problem_of(merged(two_by_two(), merged(one_each, {{"SLURM_DISTRIBUTION", "arbitrary"},
                                                                {"SLURM_DDP_HEAD", "p1"}}))),
              HasSubstr("add order=packed"));
}

TEST(TfConfig, NeedsAPortForEachTaskOnANode) {
  EXPECT_THAT(problem_of(merged(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "20086-20087"}})),
              HasSubstr("--resv-ports=3"));
}

TEST(TfConfig, TooManyRanksAreRejected) {
  EXPECT_THAT(problem_of(merged(two_by_two(), {{"SLURM_STEP_NUM_TASKS", "8000"},
                                               {"SLURM_STEP_NUM_NODES", "4000"},
                                               {"SLURM_STEP_NODELIST", "long-name[0001-4000]"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "2(x4000)"},
                                               {"SLURMD_NODENAME", "long-name0002"}})),
              HasSubstr("longer than a variable can be"));
}

}  // namespace
}  // namespace ddp::launch

// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/mpi/process_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ddp::comm {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<std::string> complaint_about(const Variables& variables,
                                           const PmiSupport& support = {}) {
  return missing_process_manager(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      support);
}

TEST(ProcessManager, MissingManagerForSeveralTasksIsReported) {
  const Variables none{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  const auto report = complaint_about(none);
  ASSERT_TRUE(report);
  EXPECT_THAT(*report, testing::HasSubstr("4 tasks"));
  EXPECT_THAT(*report, testing::HasSubstr("add --mpi=pmix to srun"));
  EXPECT_FALSE(complaint_about(none, {.pmi1 = true}));
  EXPECT_TRUE(complaint_about(none, {.pmi2 = true})) << "srun does not offer it by default";

  Variables settings = none;
  settings["PMIX_MCA_gds"] = "hash";
  EXPECT_TRUE(complaint_about(settings)) << "a user's setting is not a process manager";
}

TEST(ProcessManager, Pmi2IsReportedIfMpiDoesNotSupportIt) {
  const Variables pmi2{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"},
                       {"PMI_FD", "9"},       {"PMI_RANK", "1"},
                       {"PMI_SIZE", "4"},     {"PMI_JOBID", "7.0"}};
  const auto report = complaint_about(pmi2);
  ASSERT_TRUE(report);
  EXPECT_THAT(*report, testing::HasSubstr("4 tasks with PMI-2"));
  EXPECT_THAT(*report, testing::HasSubstr("add --mpi=pmix to srun"));
  EXPECT_FALSE(complaint_about(pmi2, {.pmi2 = true}));
  EXPECT_FALSE(complaint_about(pmi2, {.pmi1 = true}));

  Variables flux = pmi2;
  flux["FLUX_JOB_ID"] = "f1";
  EXPECT_FALSE(complaint_about(flux)) << "its own PMI, in a task of SLURM";
  Variables hydra = pmi2;
  hydra["PMI_SIZE"] = "16";
  EXPECT_FALSE(complaint_about(hydra)) << "another launcher's ranks";
  Variables both = pmi2;
  both["PMIX_RANK"] = "1";
  EXPECT_FALSE(complaint_about(both));
}

TEST(ProcessManager, OtherLaunchesAreNotReported) {
  const std::map<std::string, Variables> starts{
      {"a shell", {}},
      {"a batch script", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}},
      {"one task", {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}},
      {"an allocation without a task", {{"SLURM_STEP_NUM_TASKS", "4"}}},
      {"nonsense", {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "many"}}},
      {"--mpi=pmix", {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_RANK", "0"}}},
      {"another PMI server",
       {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_FD", "9"}}},
      {"mpirun in a step",
       {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"OMPI_COMM_WORLD_SIZE", "8"}}},
  };
  for (const auto& [start, variables] : starts) EXPECT_FALSE(complaint_about(variables)) << start;
}

}  // namespace
}  // namespace ddp::comm

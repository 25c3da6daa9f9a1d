// SPDX-License-Identifier: Apache-2.0
// Tests the job step that a task derives from its environment variables.
#include "ddp_runtime/check/net/step/job_step.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/errors.h"
#include "tests/unit/check/environment_of.h"
#include "tests/unit/error_of.h"

namespace ddp::check {
namespace {

Variables slurm_task() {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NODELIST", "n[1-2]"},
          {"SLURM_STEP_TASKS_PER_NODE", "3,2"},
          {"SLURM_PROCID", "3"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURMD_NODENAME", "n2"}};
}

Variables mpirun_task(const std::string& local_size) {
  return {{"OMPI_COMM_WORLD_RANK", "2"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", local_size},
          {"PMIX_NAMESPACE", "1234"}};
}

std::string nodes_of(const JobStep& step) {
  std::string text;
  for (const auto& [name, tasks] : step.nodes) text += name + ":" + std::to_string(tasks) + " ";
  return text;
}

TEST(JobStep, HasTheNumberOfNodesOfTheWholeJob) {
  struct Case {
    const char* number;
    const char* list;
    int nodes;
  };
  for (const auto& [number, list, nodes] :
       {Case{"1", "n1", 1}, Case{"1", "n[1-4]", 4}, Case{"4", "n1", 4}, Case{"", "n1", 1},
        Case{"2", "", 2}, Case{"", "", 0}}) {
    Variables variables = slurm_task();
    if (*number != 0) variables["SLURM_JOB_NUM_NODES"] = number;
    if (*list != 0) variables["SLURM_JOB_NODELIST"] = list;
    EXPECT_EQ(step_from(environment_of(variables), "host", {}).job_nodes, nodes) << list;
  }
}

TEST(JobStep, IsReadFromASlurmTask) {
  const JobStep step = step_from(environment_of(slurm_task()), "host", {});
  EXPECT_EQ(step.rank, 3);
  EXPECT_EQ(step.size, 5);
  EXPECT_EQ(step.node, "n2");
  EXPECT_EQ(nodes_of(step), "n1:3 n2:2 ");
  EXPECT_EQ(step.leader_host, "n1");
  EXPECT_EQ(step.leader_port, 61000 + 12 + 3 * 1009);
  EXPECT_EQ(step.identity, "12.3");
}

TEST(JobStep, UsesMasterAddrAndPort) {
  auto variables = slurm_task();
  variables["SLURM_STEP_RESV_PORTS"] = "20086-20088";
  EXPECT_EQ(step_from(environment_of(variables), "host", {}).leader_port, 20086);
  variables["MASTER_ADDR"] = "n1-ib";
  variables["MASTER_PORT"] = "29500";
  const JobStep step = step_from(environment_of(variables), "host", {});
  EXPECT_EQ(step.leader_host, "n1-ib");
  EXPECT_EQ(step.leader_port, 29500);
  EXPECT_EQ(step_from(environment_of(variables), "host", {.port = 4711}).leader_port, 4711);
}

TEST(JobStep, IsReadFromMpirunOnOneMachine) {
  const JobStep step = step_from(environment_of(mpirun_task("4")), "host", {});
  EXPECT_EQ(step.rank, 2);
  EXPECT_EQ(nodes_of(step), "host:4 ");
  EXPECT_EQ(step.leader_host, "127.0.0.1");
  EXPECT_GE(step.leader_port, 61000);
}

TEST(JobStep, MpirunOnSeveralMachinesNeedsMasterAddr) {
  auto variables = mpirun_task("2");
  EXPECT_THROW(step_from(environment_of(variables), "host", {}), UsageError);
  variables["MASTER_ADDR"] = "head";
  const JobStep step = step_from(environment_of(variables), "host", {});
  EXPECT_EQ(step.leader_host, "head");
  EXPECT_EQ(nodes_of(step), "");  // the nodes are unknown
}

TEST(JobStep, WithoutALauncherHasOneTask) {
  const JobStep step = step_from(environment_of({}), "host", {});
  EXPECT_EQ(step.size, 1);
  EXPECT_EQ(nodes_of(step), "host:1 ");
  EXPECT_EQ(step.leader_port, 0);
}

TEST(JobStep, PretendedNodesAreEqualBlocksOfRanks) {
  const auto pretended = [](int rank, int size, const std::string& list) {
    auto variables = mpirun_task(std::to_string(size));
    variables["OMPI_COMM_WORLD_SIZE"] = std::to_string(size);
    variables["OMPI_COMM_WORLD_RANK"] = std::to_string(rank);
    return step_from(environment_of(variables), "host", {.pretend_nodes = list});
  };
  EXPECT_EQ(nodes_of(pretended(0, 4, "n[1-4]")), "n1:1 n2:1 n3:1 n4:1 ");
  EXPECT_EQ(nodes_of(pretended(0, 5, "n[1-2]")), "n1:3 n2:2 ");
  // Every rank is on the node whose block it belongs to.
  for (int size = 1; size <= 9; ++size) {
    for (int count = 1; count <= size; ++count) {
      const std::string list = "n[1-" + std::to_string(count) + "]";
      std::map<std::string, int> found;
      for (int rank = 0; rank < size; ++rank) ++found[pretended(rank, size, list).node];
      for (const auto& [name, tasks] : pretended(0, size, list).nodes) {
        EXPECT_EQ(found[name], tasks) << size << " tasks, " << name << " of " << list;
      }
    }
  }
  EXPECT_THROW(pretended(0, 2, "n[1-3]"), UsageError);
  EXPECT_THROW(pretended(0, 2, "n[1-"), UsageError);
  EXPECT_EQ(error_of([&] { pretended(0, 4, "n[1-2],n2"); }),
            "--pretend-nodes names 'n2' twice; give every node its own name");
}

TEST(JobStep, RejectsInconsistentVariables) {
  auto variables = slurm_task();
  variables["MASTER_PORT"] = "http";
  EXPECT_THROW(step_from(environment_of(variables), "host", {}), UsageError);
  variables["MASTER_PORT"] = "65536";
  EXPECT_THROW(step_from(environment_of(variables), "host", {}), UsageError);
  variables = slurm_task();
  variables["SLURM_STEP_TASKS_PER_NODE"] = "3,3";
  EXPECT_THROW(step_from(environment_of(variables), "host", {}), UsageError);
}

}  // namespace
}  // namespace ddp::check

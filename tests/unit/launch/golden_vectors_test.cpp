// SPDX-License-Identifier: Apache-2.0
// The environments of tasks in many kinds of steps, recorded from live runs of SLURM 22.05.8, and
// the correct plan for each.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fake_environment.h"

namespace ddp::launch {
namespace {

struct Task {
  std::string proc_id, local_id, node_id, node, gtids;
  // expected
  std::string local_world_size;
};

struct Step {
  const char* name;
  Variables variables;  // of the step
  std::vector<Task> tasks;
  std::string world_size, leader;
};

Variables step(const std::string& nodes, const std::string& list, const std::string& tasks,
               const std::string& per_node, const Variables& more = {}) {
  return merged({{"SLURM_JOB_ID", "7"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_STEP_NUM_NODES", nodes},
                 {"SLURM_STEP_NODELIST", list},
                 {"SLURM_STEP_NUM_TASKS", tasks},
                 {"SLURM_STEP_TASKS_PER_NODE", per_node}},
                more);
}

std::vector<Step> recorded_steps() {
  return {
      {"block",
       step("2", "p[1-2]", "5", "4,1"),
       {{"0", "0", "0", "p1", "0,1,2,3", "4"},
        {"3", "3", "0", "p1", "0,1,2,3", "4"},
        {"4", "0", "1", "p2", "4", "1"}},
       "5",
       "p1"},
      {"block fills by CPUs",
       step("2", "p[1-2]", "4", "3,1"),
       {{"2", "2", "0", "p1", "0,1,2", "3"}, {"3", "0", "1", "p2", "3", "1"}},
       "4",
       "p1"},
      {"cyclic",
       step("2", "p[1-2]", "5", "4,1", {{"SLURM_DISTRIBUTION", "cyclic"}}),
       {{"0", "0", "0", "p1", "0,2,3,4", "4"},
        {"1", "0", "1", "p2", "1", "1"},
        {"4", "3", "0", "p1", "0,2,3,4", "4"}},
       "5",
       "p1"},
      {"plane=2",
       step("2", "p[1-2]", "6", "4,2", {{"SLURM_DISTRIBUTION", "plane"}}),
       {{"5", "3", "0", "p1", "0,1,4,5", "4"}, {"2", "0", "1", "p2", "2,3", "2"}},
       "6",
       "p1"},
      {"hostfile p2,p1,p2,p1",
       step("2", "p[1-2]", "4", "2(x2)",
            {{"SLURM_DISTRIBUTION", "arbitrary"}, {"SLURM_DDP_HEAD", "p2"}}),
       {{"0", "0", "1", "p2", "0,2", "2"},
        {"1", "0", "0", "p1", "1,3", "2"},
        {"3", "1", "0", "p1", "1,3", "2"}},
       "4",
       "p2"},
      {"arbitrary by -w, with PMIx",
       step("2", "p[1,3]", "4", "2(x2)",
            {{"SLURM_DISTRIBUTION", "arbitrary"},
             {"SLURM_MPI_TYPE", "pmix"},
             {"SLURM_PMIX_MAPPING_SERV", "(vector,(1,1,1),(0,2,1),(0,1,1))"}}),
       {{"0", "0", "1", "p3", "0,2", "2"}, {"1", "0", "0", "p1", "1,3", "2"}},
       "4",
       "p3"},
      {"-w p3,p1, which SLURM sorts",
       step("2", "p[1,3]", "2", "1(x2)"),
       {{"0", "0", "0", "p1", "0", "1"}, {"1", "0", "1", "p3", "1", "1"}},
       "2",
       "p1"},
      {"-r1: step-relative numbers",
       step("1", "p4", "1", "1"),
       {{"0", "0", "0", "p4", "0", "1"}},
       "1",
       "p4"},
      {"-E in a job of 4 tasks: job-level counts are stale",
       step("1", "p1", "1", "1",
            {{"SLURM_NTASKS", "4"}, {"SLURM_NNODES", "2"}, {"SLURM_NODELIST", "p[1-2]"}}),
       {{"0", "0", "0", "p1", "0", "1"}},
       "1",
       "p1"},
      {"-n1 in a job of --ntasks-per-node=2",
       step("1", "p1", "1", "1",
            {{"SLURM_NTASKS_PER_NODE", "2"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}}),
       {{"0", "0", "0", "p1", "0", "1"}},
       "1",
       "p1"},
      {"array element",
       step("1", "p2", "2", "2", {{"SLURM_ARRAY_JOB_ID", "3"}, {"SLURM_ARRAY_TASK_ID", "4"}}),
       {{"1", "1", "0", "p2", "0,1", "2"}},
       "2",
       "p2"},
      {"job of components, in the order of the names",
       step("3", "p[1,3-4]", "4", "2,1(x2)",
            {{"SLURM_HET_SIZE", "2"},
             {"SLURM_JOB_NODELIST_HET_GROUP_0", "p1"},
             {"SLURM_JOB_NODELIST_HET_GROUP_1", "p[3-4]"}}),
       {{"0", "0", "0", "p1", "0,1", "2"},
        {"2", "0", "1", "p3", "2", "1"},
        {"3", "0", "2", "p4", "3", "1"}},
       "4",
       "p1"},
      // The list is sorted over all components, but SLURM_NODEID is not, so rank 0 is on the last
      // node.
      {"job of components, first one last",
       step("3", "p[1-3]", "4", "1(x2),2",
            {{"SLURM_HET_SIZE", "2"},
             {"SLURM_DISTRIBUTION", "cyclic"},
             {"SLURM_JOB_NODELIST_PACK_GROUP_0", "p3"},
             {"SLURM_JOB_NODELIST_PACK_GROUP_1", "p[1-2]"}}),
       {{"0", "0", "0", "p3", "0,1", "2"},
        {"1", "1", "0", "p3", "0,1", "2"},
        {"2", "0", "1", "p1", "2", "1"},
        {"3", "0", "2", "p2", "3", "1"}},
       "4",
       "p3"},
      {"step of components in an ordinary job",
       step("2", "p[1-2]", "3", "2,1",
            {{"SLURM_DDP_COMPONENTS", "2"},
             {"SLURM_MPI_TYPE", "pmix"},
             {"SLURM_PMIX_MAPPING_SERV", "(vector,(1,1,1),(0,1,2))"}}),
       {{"0", "0", "0", "p2", "0", "1"}, {"2", "1", "1", "p1", "1,2", "2"}},
       "3",
       "p2"},
  };
}

Variables task_variables(const Step& step, const Task& task) {
  return merged(step.variables, {{"SLURM_PROCID", task.proc_id},
                                 {"SLURM_LOCALID", task.local_id},
                                 {"SLURM_NODEID", task.node_id},
                                 {"SLURM_GTIDS", task.gtids},
                                 {"SLURMD_NODENAME", task.node}});
}

TEST(GoldenVectors, GiveTheExpectedPlan) {
  for (const Step& recorded : recorded_steps()) {
    for (const Task& task : recorded.tasks) {
      SCOPED_TRACE(std::string(recorded.name) + ", rank " + task.proc_id);
      const Plan plan = slurm_plan(task_variables(recorded, task));
      EXPECT_EQ(value_in(plan, "RANK"), task.proc_id);
      EXPECT_EQ(value_in(plan, "WORLD_SIZE"), recorded.world_size);
      EXPECT_EQ(value_in(plan, "LOCAL_RANK"), task.local_id);
      EXPECT_EQ(value_in(plan, "LOCAL_WORLD_SIZE"), task.local_world_size);
      EXPECT_EQ(value_in(plan, "NODE_RANK"), task.node_id);
      EXPECT_EQ(value_in(plan, "GROUP_RANK"), task.node_id);
      EXPECT_EQ(value_in(plan, "NNODES"), recorded.variables.at("SLURM_STEP_NUM_NODES"));
      EXPECT_EQ(value_in(plan, "GROUP_WORLD_SIZE"), value_in(plan, "NNODES"));
      EXPECT_EQ(value_in(plan, "MASTER_ADDR"), recorded.leader);
    }
  }
}

TEST(GoldenVectors, AllTasksOfAStepAgreeOnThePort) {
  for (const Step& recorded : recorded_steps()) {
    const std::string first =
        value_in(slurm_plan(task_variables(recorded, recorded.tasks.front())), "MASTER_PORT");
    EXPECT_NE(first, "");
    for (const Task& task : recorded.tasks) {
      EXPECT_EQ(value_in(slurm_plan(task_variables(recorded, task)), "MASTER_PORT"), first)
          << recorded.name;
    }
  }
}

}  // namespace
}  // namespace ddp::launch

// SPDX-License-Identifier: Apache-2.0
// The environments of tasks in many kinds of steps, recorded from live runs of SLURM 22.05.8, and
// the correct plan for each. Below them, tasks whose user or site has set more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "fake_environment.h"

namespace ddp::launch {
namespace {

struct Task {
  const char *proc_id, *local_id, *node_id, *node, *gtids;
  const char* local_world_size;  // expected
};

struct StepLayout {
  const char *nodes, *list, *tasks, *per_node;
};

struct Step {
  const char* name;
  StepLayout layout;
  std::vector<Task> tasks;
  const char* leader;     // expected
  const char* more = "";  // variables
};

std::vector<Step> recorded_steps() {
  return {
      {"block",
       {"2", "p[1-2]", "5", "4,1"},
       {{"0", "0", "0", "p1", "0,1,2,3", "4"},
        {"3", "3", "0", "p1", "0,1,2,3", "4"},
        {"4", "0", "1", "p2", "4", "1"}},
       "p1"},
      {"block fills by CPUs",
       {"2", "p[1-2]", "4", "3,1"},
       {{"2", "2", "0", "p1", "0,1,2", "3"}, {"3", "0", "1", "p2", "3", "1"}},
       "p1"},
      {"cyclic",
       {"2", "p[1-2]", "5", "4,1"},
       {{"0", "0", "0", "p1", "0,2,3,4", "4"},
        {"1", "0", "1", "p2", "1", "1"},
        {"4", "3", "0", "p1", "0,2,3,4", "4"}},
       "p1",
       "SLURM_DISTRIBUTION=cyclic"},
      {"plane=2",
       {"2", "p[1-2]", "6", "4,2"},
       {{"5", "3", "0", "p1", "0,1,4,5", "4"}, {"2", "0", "1", "p2", "2,3", "2"}},
       "p1",
       "SLURM_DISTRIBUTION=plane"},
      {"hostfile p2,p1,p2,p1",
       {"2", "p[1-2]", "4", "2(x2)"},
       {{"0", "0", "1", "p2", "0,2", "2"},
        {"1", "0", "0", "p1", "1,3", "2"},
        {"3", "1", "0", "p1", "1,3", "2"}},
       "p2",
       "SLURM_DISTRIBUTION=arbitrary SLURM_DDP_HEAD=p2"},
      {"arbitrary by -w, with PMIx",
       {"2", "p[1,3]", "4", "2(x2)"},
       {{"0", "0", "1", "p3", "0,2", "2"}, {"1", "0", "0", "p1", "1,3", "2"}},
       "p3",
       "SLURM_DISTRIBUTION=arbitrary SLURM_MPI_TYPE=pmix "
       "SLURM_PMIX_MAPPING_SERV=(vector,(1,1,1),(0,2,1),(0,1,1))"},
      {"-w p3,p1, which SLURM sorts",
       {"2", "p[1,3]", "2", "1(x2)"},
       {{"0", "0", "0", "p1", "0", "1"}, {"1", "0", "1", "p3", "1", "1"}},
       "p1"},
      {"-r1: step-relative numbers",
       {"1", "p4", "1", "1"},
       {{"0", "0", "0", "p4", "0", "1"}},
       "p4"},
      {"-E in a job of 4 tasks: job-level counts are stale",
       {"1", "p1", "1", "1"},
       {{"0", "0", "0", "p1", "0", "1"}},
       "p1",
       "SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_NODELIST=p[1-2]"},
      {"-n1 in a job of --ntasks-per-node=2",
       {"1", "p1", "1", "1"},
       {{"0", "0", "0", "p1", "0", "1"}},
       "p1",
       "SLURM_NTASKS_PER_NODE=2 SLURM_TASKS_PER_NODE=2(x2)"},
      {"array element",
       {"1", "p2", "2", "2"},
       {{"1", "1", "0", "p2", "0,1", "2"}},
       "p2",
       "SLURM_ARRAY_JOB_ID=3 SLURM_ARRAY_TASK_ID=4"},
      {"job of components, in the order of the names",
       {"3", "p[1,3-4]", "4", "2,1(x2)"},
       {{"0", "0", "0", "p1", "0,1", "2"},
        {"2", "0", "1", "p3", "2", "1"},
        {"3", "0", "2", "p4", "3", "1"}},
       "p1",
       "SLURM_HET_SIZE=2 SLURM_JOB_NODELIST_HET_GROUP_0=p1 "
       "SLURM_JOB_NODELIST_HET_GROUP_1=p[3-4]"},
      // The list is sorted over all components, but SLURM_NODEID is not, so rank 0 is on the last
      // node.
      {"job of components, first one last",
       {"3", "p[1-3]", "4", "1(x2),2"},
       {{"0", "0", "0", "p3", "0,1", "2"},
        {"1", "1", "0", "p3", "0,1", "2"},
        {"2", "0", "1", "p1", "2", "1"},
        {"3", "0", "2", "p2", "3", "1"}},
       "p3",
       "SLURM_HET_SIZE=2 SLURM_DISTRIBUTION=cyclic SLURM_JOB_NODELIST_PACK_GROUP_0=p3 "
       "SLURM_JOB_NODELIST_PACK_GROUP_1=p[1-2]"},
      {"step of components in an ordinary job",
       {"2", "p[1-2]", "3", "2,1"},
       {{"0", "0", "0", "p2", "0", "1"}, {"2", "1", "1", "p1", "1,2", "2"}},
       "p2",
       "SLURM_DDP_COMPONENTS=2 SLURM_MPI_TYPE=pmix "
       "SLURM_PMIX_MAPPING_SERV=(vector,(1,1,1),(0,1,2))"},
  };
}

Variables task_variables(const Step& step, const Task& task) {
  return merged(variables_in(step.more), {{"SLURM_JOB_ID", "7"},
                                          {"SLURM_STEP_ID", "0"},
                                          {"SLURM_STEP_NUM_NODES", step.layout.nodes},
                                          {"SLURM_STEP_NODELIST", step.layout.list},
                                          {"SLURM_STEP_NUM_TASKS", step.layout.tasks},
                                          {"SLURM_STEP_TASKS_PER_NODE", step.layout.per_node},
                                          {"SLURM_PROCID", task.proc_id},
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
      EXPECT_EQ(value_in(plan, "WORLD_SIZE"), recorded.layout.tasks);
      EXPECT_EQ(value_in(plan, "LOCAL_RANK"), task.local_id);
      EXPECT_EQ(value_in(plan, "LOCAL_WORLD_SIZE"), task.local_world_size);
      EXPECT_EQ(value_in(plan, "NODE_RANK"), task.node_id);
      EXPECT_EQ(value_in(plan, "GROUP_RANK"), task.node_id);
      EXPECT_EQ(value_in(plan, "NNODES"), recorded.layout.nodes);
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

// A task with more variables or settings than its step gives it, and a part of its plan.
struct PlanVector {
  const char* why;
  // "NAME=VALUE" is a variable of the task, "node:NAME=VALUE" one of the node for GPUs, "cpus:N"
  // the number of CPUs in the task's mask, a fourth of the node's, and "closed" says that the task
  // cannot open the files of GPUs.
  const char* given;
  const char* spec;
  // "NAME=VALUE" is in the plan, "NAME=kept" or "NAME=removed" as well, and "-NAME" is not.
  const char* expected;
  const char* note = nullptr;  // a part of the only note; "": there are no notes; null: any
};

Plan plan_of(const Variables& base, const PlanVector& vector) {
  Variables variables = base;
  Facts more;
  std::istringstream words(vector.given);
  for (std::string word; words >> word;) {
    if (word == "closed") {
      more.task.hides_gpu_devices = true;
    } else if (word.starts_with("cpus:")) {
      const auto cpus = static_cast<std::uint32_t>(std::stoul(word.substr(5)));
      more.task.cpus = CpuFacts{cpus, cpus, 4 * cpus};
    } else if (word.starts_with("node:")) {
      for (const auto& [name, value] : variables_in(word.substr(5)))
        more.node.gpus.push_back({name, value});
    } else {
      variables = merged(variables, variables_in(word));
    }
  }
  Facts facts = slurm_facts(variables, more.node);
  facts.task.cpus = more.task.cpus;
  facts.task.hides_gpu_devices = more.task.hides_gpu_devices;
  return make_plan(facts, asked(vector.spec), Inherited(lookup_in(variables), facts.step.id));
}

void expect_plans(const Variables& base, const std::vector<PlanVector>& vectors) {
  for (const PlanVector& vector : vectors) {
    SCOPED_TRACE(vector.why);
    const Plan plan = plan_of(base, vector);
    std::istringstream words(vector.expected);
    for (std::string word; words >> word;) {
      const bool is_absent = word.starts_with('-');
      const std::string name = word.substr(is_absent ? 1 : 0, word.find('=') - (is_absent ? 1 : 0));
      const PlanEntry* const entry = plan.find(name);
      ASSERT_EQ(entry == nullptr, is_absent) << word;
      if (is_absent) continue;
      const std::string value = word.substr(name.size() + 1);
      if (value == "kept" || value == "removed") {
        EXPECT_TRUE(value == "kept" ? entry->kept : entry->removed) << word;
      } else {
        EXPECT_EQ(entry->value, value) << word;
      }
    }
    if (vector.note == nullptr) continue;
    if (*vector.note == '\0') {
      EXPECT_THAT(plan.notes, testing::IsEmpty());
    } else {
      EXPECT_THAT(plan.notes, testing::ElementsAre(testing::HasSubstr(vector.note)));
    }
  }
}

TEST(GoldenVectors, VariablesOfTheUser) {
  expect_plans(
      two_by_two(),
      {{"nothing is wrong", "", "", "SLURM_NTASKS_PER_NODE=2", ""},
       {"rank variables are always set",
        "RANK=77 WORLD_SIZE=99 LOCAL_RANK=5 LOCAL_WORLD_SIZE=5 NODE_RANK=5 GROUP_RANK=5", "",
        "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 NODE_RANK=1 GROUP_RANK=1"},
       {"the rendezvous stays", "MASTER_ADDR=my-host MASTER_PORT=1234", "",
        "MASTER_ADDR=my-host MASTER_ADDR=kept MASTER_PORT=1234 MASTER_PORT=kept"},
       {"an empty value counts as unset", "MASTER_ADDR=", "", "MASTER_ADDR=p1"},
       {"the job's, not the step's", "SLURM_NTASKS_PER_NODE=8", "", "SLURM_NTASKS_PER_NODE=2"},
       {"already correct", "SLURM_NTASKS_PER_NODE=2", "", "-SLURM_NTASKS_PER_NODE"},
       {"uneven nodes have no such number",
        "SLURM_STEP_TASKS_PER_NODE=1,3 SLURM_PROCID=1 SLURM_GTIDS=1,2,3", "",
        "-SLURM_NTASKS_PER_NODE", "different numbers of tasks"},
       {"no hint is needed if the address is given", "SLURM_DISTRIBUTION=arbitrary",
        "master_addr=p2", "MASTER_ADDR=p2"},
       {"not in block order", "SLURM_DISTRIBUTION=cyclic SLURM_PROCID=1 SLURM_GTIDS=1,3", "", "",
        "not numbered node by node (distribution cyclic"},
       // The first rank is on the same node as in block order, but the others are not.
       {"rank 0 of a cyclic step",
        "SLURM_DISTRIBUTION=cyclic SLURM_PROCID=0 SLURM_NODEID=0 SLURM_GTIDS=0,2 "
        "SLURMD_NODENAME=p1",
        "", "", "not numbered node by node"},
       {"localhost", "MASTER_ADDR=localhost", "", "", "points every node to itself"},
       {"not a port", "MASTER_PORT=auto", "", "", "is not a number from 1 to 65535"},
       {"each rank's own port", "MASTER_PORT=0", "", "", "lets the kernel choose"},
       {"a port of root", "MASTER_PORT=1023", "", "", "only root may listen"},
       {"a port of users", "MASTER_PORT=1024", "", "", ""},
       {"Lightning expects rank 0 elsewhere",
        "SLURM_NODELIST=n[8-9],p[1-2] SLURM_PROCID=0 SLURM_NODEID=0 SLURM_GTIDS=0,1 "
        "SLURMD_NODENAME=p1",
        "", "", "rank 0 is on p1, not on the job's first node, n8"},
       {"Lightning expects it there",
        "SLURM_NODELIST=p[1-4] SLURM_PROCID=0 SLURM_NODEID=0 SLURM_GTIDS=0,1 SLURMD_NODENAME=p1",
        "", "", ""},
       {"Lightning's list is damaged",
        "SLURM_NODELIST=p[1- SLURM_PROCID=0 SLURM_NODEID=0 SLURM_GTIDS=0,1 SLURMD_NODENAME=p1", "",
        "", ""},
       {"rank 0 reports it", "SLURM_NODELIST=n8", "", "", ""},
       {"reserved ports take precedence", "SLURM_STEP_RESV_PORTS=20086-20088", "",
        "MASTER_PORT=20086"}});
}

// The GPU lists contain the values that SLURM 22.05 sets for the named options.
TEST(GoldenVectors, DevicesAndThreads) {
  expect_plans(
      merged(two_by_two(), variables_in("SLURM_PROCID=3 SLURM_LOCALID=1")),
      {{"--gpus-per-node=2 -n2", "CUDA_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=2", "",
        "LOCAL_RANK=1 -JAX_LOCAL_DEVICE_IDS -CUDA_VISIBLE_DEVICES", ""},
       {"--gpus-per-task=1, --gpu-bind=single:1", "CUDA_VISIBLE_DEVICES=1 SLURM_GPUS_ON_NODE=2", "",
        "LOCAL_RANK=1 JAX_LOCAL_DEVICE_IDS=0", "sees 1 of the 2 GPUs"},
       {"--gpus-per-task=1 --gpu-bind=none", "SLURM_GPUS_ON_NODE=2", "local_rank=device",
        "LOCAL_RANK=1", ""},
       {"unmasked on request",
        "CUDA_VISIBLE_DEVICES=1 SLURM_GPUS_ON_NODE=2 node:CUDA_VISIBLE_DEVICES=0,1",
        "gpus=shared,local_rank=device",
        "CUDA_VISIBLE_DEVICES=0,1 LOCAL_RANK=1 -JAX_LOCAL_DEVICE_IDS", ""},
       {"the node's GPUs are unknown", "CUDA_VISIBLE_DEVICES=1 SLURM_GPUS_ON_NODE=2", "gpus=shared",
        "", "unknown here"},
       {"nothing to unmask",
        "CUDA_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=2 node:CUDA_VISIBLE_DEVICES=0,1",
        "gpus=shared", "-CUDA_VISIBLE_DEVICES"},
       {"masked by device files",
        "CUDA_VISIBLE_DEVICES=1 SLURM_GPUS_ON_NODE=2 node:CUDA_VISIBLE_DEVICES=0,1 closed",
        "gpus=shared", "-CUDA_VISIBLE_DEVICES", "may not open their device files"},
       {"device of a masked task", "CUDA_VISIBLE_DEVICES=1 SLURM_GPUS_ON_NODE=2",
        "local_rank=device", "LOCAL_RANK=0"},
       {"device of a task that sees all", "CUDA_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=2",
        "local_rank=device", "LOCAL_RANK=1"},
       {"device without GPUs", "", "local_rank=device", "LOCAL_RANK=1"},
       {"too few GPUs", "CUDA_VISIBLE_DEVICES=0 SLURM_GPUS_ON_NODE=1", "", "", "Duplicate GPU"},
       {"too many GPUs", "CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_GPUS_ON_NODE=4", "", "",
        "leave 2 of its 4 GPUs idle"},
       {"no GPUs", "CUDA_VISIBLE_DEVICES=", "", "", ""},
       {"no GPUs, in NVIDIA's notation", "CUDA_VISIBLE_DEVICES=-1", "", "", ""},
       {"no GPUs, in SLURM's notation", "CUDA_VISIBLE_DEVICES=NoDevFiles", "", "", ""},
       {"AMD", "ROCR_VISIBLE_DEVICES=0,1", "local_rank=device", "LOCAL_RANK=1"},
       {"Intel", "ZE_AFFINITY_MASK=0,1", "local_rank=device", "LOCAL_RANK=1"},
       {"HIP uses the ordinals too",
        "ROCR_VISIBLE_DEVICES=1 GPU_DEVICE_ORDINAL=1 node:ROCR_VISIBLE_DEVICES=0,1 "
        "node:GPU_DEVICE_ORDINAL=0,1",
        "gpus=shared", "GPU_DEVICE_ORDINAL=0,1"},
       {"one of two MIG devices",
        "node:CUDA_VISIBLE_DEVICES=MIG-a,MIG-b SLURM_GPUS_ON_NODE=2 "
        "CUDA_VISIBLE_DEVICES=MIG-a,MIG-b",
        "local_rank=device", "LOCAL_RANK=0", "gets 2 MIG devices"},
       {"no setting would be better",
        "node:CUDA_VISIBLE_DEVICES=MIG-a,MIG-b SLURM_GPUS_ON_NODE=2 CUDA_VISIBLE_DEVICES=MIG-b",
        "local_rank=device", "LOCAL_RANK=0 -CUDA_VISIBLE_DEVICES", ""},
       {"all tasks would compute on MIG-a",
        "node:CUDA_VISIBLE_DEVICES=MIG-a,MIG-b SLURM_GPUS_ON_NODE=2 CUDA_VISIBLE_DEVICES=MIG-b",
        "gpus=shared,local_rank=device", "LOCAL_RANK=0 -CUDA_VISIBLE_DEVICES", ""},
       {"threads of the mask", "cpus:4 SLURM_CPUS_ON_NODE=8", "", "OMP_NUM_THREADS=4", ""},
       {"threads of the user", "cpus:4 SLURM_CPUS_ON_NODE=8 OMP_NUM_THREADS=1", "",
        "OMP_NUM_THREADS=1 OMP_NUM_THREADS=kept"},
       {"no threads on request", "cpus:4 SLURM_CPUS_ON_NODE=8", "threads=off", "-OMP_NUM_THREADS"},
       {"the command line wins", "cpus:4 SLURM_CPUS_ON_NODE=8 OMP_NUM_THREADS=1", "threads=3",
        "OMP_NUM_THREADS=3"},
       {"the mask is unknown", "", "", "-OMP_NUM_THREADS"},
       {"srun did not pass on CPUs", "cpus:4 SLURM_CPUS_ON_NODE=8 SLURM_CPUS_PER_TASK=6", "", "",
        "SLURM_CPUS_PER_TASK=6, but this task has 4 CPUs: add -c 6"},
       {"srun passed on all CPUs", "cpus:4 SLURM_CPUS_ON_NODE=8 SLURM_CPUS_PER_TASK=4", "", "", ""},
       {"not a number of CPUs", "cpus:4 SLURM_CPUS_ON_NODE=8 SLURM_CPUS_PER_TASK=many", "", "", ""},
       {"JAX uses a second port", "SLURM_STEP_RESV_PORTS=20086-20088", "",
        "JAX_COORDINATOR_ADDRESS=p1:20087 JAX_NUM_PROCESSES=4 JAX_PROCESS_ID=3"},
       {"61100 + 4536 / 2", "", "", "JAX_COORDINATOR_ADDRESS=p1:63368"},
       {"JAX has only one port", "SLURM_STEP_RESV_PORTS=20086", "",
        "JAX_COORDINATOR_ADDRESS=p1:20086"},
       {"JAX with IPv6", "MASTER_ADDR=fd00::1 SLURM_STEP_RESV_PORTS=1-2", "",
        "JAX_COORDINATOR_ADDRESS=[fd00::1]:2"},
       {"JAX of the user", "JAX_COORDINATOR_ADDRESS=mine:1", "", "JAX_COORDINATOR_ADDRESS=kept"}});
}

TEST(GoldenVectors, AgentsOfTorchrun) {
  const char* const c10d = "torchrun,rdzv=c10d";
  const char* const elastic = "torchrun,nnodes=2:3,restarts=5";
  const char* const store = "torchrun,nnodes=2:3,restarts=5,store=p1:29400";
  const char* const at_store =
      "PET_RDZV_ENDPOINT=p1:29400 PET_RDZV_ID=100 PET_NNODES=2:3 "
      "PET_RDZV_CONF=is_host=0,last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=5";
  expect_plans(
      one_per_node(),
      {{"options", "SLURM_STEP_RESV_PORTS=20086-20088", "torchrun",
        "PET_NNODES=3 PET_NODE_RANK=1 PET_RDZV_BACKEND=static PET_RDZV_ID=100.2 NNODES=3 "
        "PET_MASTER_ADDR=p1 PET_MASTER_PORT=20086 -RANK -WORLD_SIZE -LOCAL_RANK -PET_RDZV_ENDPOINT "
        "-JAX_COORDINATOR_ADDRESS -PET_NPROC_PER_NODE -OMP_NUM_THREADS",
        "one worker per node"},
       {"ranks of an outer step", "RANK=7 WORLD_SIZE=9", "torchrun",
        "RANK=removed WORLD_SIZE=removed -LOCAL_RANK"},
       {"the number of agents may change", "PET_NNODES=1:3", "torchrun", "PET_RDZV_BACKEND=c10d"},
       {"agents may restart", "PET_MAX_RESTARTS=3", "torchrun", "PET_RDZV_BACKEND=c10d"},
       {"agents do not restart", "PET_MAX_RESTARTS=0", "torchrun", "PET_RDZV_BACKEND=static"},
       {"static on request", "PET_NNODES=1:3", "torchrun,rdzv=static", "PET_RDZV_BACKEND=static"},
       {"the user's own", "PET_RDZV_BACKEND=etcd", "torchrun", "PET_RDZV_BACKEND=etcd"},
       {"c10d on request", "SLURM_RESTART_COUNT=4 MASTER_PORT=5", c10d,
        "PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=p1:5 PET_RDZV_CONF=is_host=0 PET_LOCAL_ADDR=p2 "
        "PET_RDZV_ID=100.2.4 -PET_MASTER_ADDR"},
       {"c10d on the host of the store",
        "SLURM_PROCID=0 SLURM_NODEID=0 SLURM_GTIDS=0 SLURMD_NODENAME=p1 MASTER_ADDR=fd00::1 "
        "MASTER_PORT=5",
        c10d, "PET_RDZV_CONF=is_host=1 PET_RDZV_ENDPOINT=[fd00::1]:5"},
       {"agents leave and join", "", elastic,
        "PET_NNODES=2:3 PET_MAX_RESTARTS=5 PET_RDZV_BACKEND=c10d PET_RDZV_ID=100.2 "
        "PET_RDZV_CONF=is_host=0,last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt="
        "5"},
       {"the user's own range", "PET_NNODES=1:3 PET_RDZV_CONF=join_timeout=9", "torchrun",
        "PET_NNODES=1:3 PET_RDZV_CONF=join_timeout=9"},
       {"agents meet at a store", "", store, at_store},
       {"rank 0 too: its agent may be lost like the others",
        "SLURM_PROCID=0 SLURM_NODEID=0 SLURM_GTIDS=0 SLURMD_NODENAME=p1", store, at_store},
       {"the agent of a later step",
        "SLURM_STEP_ID=7 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=p3 "
        "SLURM_STEP_TASKS_PER_NODE=1 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_GTIDS=0 "
        "SLURMD_NODENAME=p3",
        store, at_store},
       {"its address",
        "SLURM_STEP_ID=7 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=p3 "
        "SLURM_STEP_TASKS_PER_NODE=1 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_GTIDS=0 "
        "SLURMD_NODENAME=p3",
        store, "PET_LOCAL_ADDR=p3"},
       {"a store after a restart", "SLURM_RESTART_COUNT=2", store, "PET_RDZV_ID=100.2"},
       {"a store needs c10d", "", "torchrun,store=p1:29400", "PET_RDZV_BACKEND=c10d"},
       {"a worker per GPU", "CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_GPUS_ON_NODE=4 cpus:16", "torchrun",
        "PET_NPROC_PER_NODE=4 OMP_NUM_THREADS=4"},
       {"the user's number of workers",
        "CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_GPUS_ON_NODE=4 cpus:16 PET_NPROC_PER_NODE=2",
        "torchrun", "PET_NPROC_PER_NODE=kept OMP_NUM_THREADS=8"},
       // Rank 0 is on p3, whose SLURM_NODEID is 2.
       {"agents are numbered by rank, with the first at MASTER_ADDR",
        "SLURM_DISTRIBUTION=arbitrary SLURM_DDP_HEAD=p3 SLURM_PROCID=0 SLURM_NODEID=2 "
        "SLURM_GTIDS=0 SLURMD_NODENAME=p3",
        "torchrun", "PET_NODE_RANK=0 PET_MASTER_ADDR=p3"}});
}

}  // namespace
}  // namespace ddp::launch

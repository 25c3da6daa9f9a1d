// SPDX-License-Identifier: Apache-2.0
// A task's GPUs and LOCAL_RANK, and its CPU cores and OMP_NUM_THREADS. The GPU tables contain the
// values that SLURM 22.05 sets for the named options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "fake_environment.h"
#include "spank_plugin/launch/cpu_threads.h"
#include "spank_plugin/launch/gpu_view.h"

namespace ddp::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Rank 3, the second of two tasks on its node.
Variables second_task() {
  return merged(two_by_two(), {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}});
}

Plan gpu_plan(const Variables& more, const std::string& spec = "", const NodeFacts& node = {}) {
  return slurm_plan(merged(second_task(), more), asked(spec), node);
}

NodeFacts node_with(const std::string& devices) {
  NodeFacts node;
  node.gpus = {{"CUDA_VISIBLE_DEVICES", devices}};
  return node;
}

const Variables kShared = {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"SLURM_GPUS_ON_NODE", "2"}};
const Variables kMasked = {{"CUDA_VISIBLE_DEVICES", "1"}, {"SLURM_GPUS_ON_NODE", "2"}};

TEST(CountDevices, CountsAnyList) {
  EXPECT_EQ(count_devices("0"), 1U);
  EXPECT_EQ(count_devices("0,1,2"), 3U);
  EXPECT_EQ(count_devices("GPU-8932f937-d72c,MIG-0a1b"), 2U);
  EXPECT_EQ(count_devices("MIG-0a1b,MIG-GPU-8932f937/1/0,MIG-3c"), 1U) << "CUDA shows only one";
  EXPECT_EQ(count_devices(""), 0U);
  EXPECT_EQ(count_devices("-1"), 0U);
  EXPECT_EQ(count_devices("NoDevFiles"), 0U);
  EXPECT_EQ(count_devices("0,1,-1,2"), 2U) << "an invalid entry hides all after it";
  EXPECT_EQ(count_devices("0,1,0"), 0U) << "a duplicate hides all";
  std::string many = "0";
  for (int i = 1; i < 10'000; ++i) many += "," + std::to_string(i);
  EXPECT_EQ(count_devices(many), 4096U) << "bounded";
}

TEST(Gpus, NoNotesIfAllAreVisible) {  // --gpus-per-node=2 -n2
  const Plan plan = gpu_plan(kShared);
  EXPECT_EQ(value_in(plan, "LOCAL_RANK"), "1");
  EXPECT_EQ(value_in(plan, "DDP_LOCAL_DEVICE"), "1");
  EXPECT_EQ(plan.find("JAX_LOCAL_DEVICE_IDS"), nullptr);
  EXPECT_EQ(plan.find("CUDA_VISIBLE_DEVICES"), nullptr);
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(Gpus, MaskedTaskGetsANote) {  // --gpus-per-task=1, --gpu-bind=single:1
  const Plan plan = gpu_plan(kMasked);
  EXPECT_EQ(value_in(plan, "LOCAL_RANK"), "1") << "LOCAL_RANK stays the number on the node";
  EXPECT_EQ(value_in(plan, "DDP_LOCAL_DEVICE"), "0");
  EXPECT_EQ(value_in(plan, "JAX_LOCAL_DEVICE_IDS"), "0");
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("sees 1 of the 2 GPUs")));
}

TEST(Gpus, UnmaskedOnRequest) {
  const Plan plan = gpu_plan(kMasked, "gpus=shared", node_with("0,1"));
  EXPECT_EQ(value_in(plan, "CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(value_in(plan, "DDP_LOCAL_DEVICE"), "1");
  EXPECT_EQ(plan.find("JAX_LOCAL_DEVICE_IDS"), nullptr);
  EXPECT_THAT(plan.notes, IsEmpty());
  EXPECT_THAT(gpu_plan(kMasked, "gpus=shared").notes, ElementsAre(HasSubstr("unknown here")));
  EXPECT_EQ(gpu_plan(kShared, "gpus=shared", node_with("0,1")).find("CUDA_VISIBLE_DEVICES"),
            nullptr);
}

TEST(Gpus, StayMaskedIfDeviceFilesAreInaccessible) {
  Facts facts = slurm_facts(merged(second_task(), kMasked), node_with("0,1"));
  facts.task.hides_gpu_devices = true;
  const Plan plan = make_plan(facts, asked("gpus=shared"), Inherited(lookup_in({}), facts.step.id));
  EXPECT_EQ(plan.find("CUDA_VISIBLE_DEVICES"), nullptr);
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("may not open their device files")));
}

TEST(Gpus, LocalRankAsDeviceOnRequest) {
  EXPECT_EQ(value_in(gpu_plan(kMasked, "local_rank=device"), "LOCAL_RANK"), "0");
  EXPECT_EQ(value_in(gpu_plan(kShared, "local_rank=device"), "LOCAL_RANK"), "1");
  EXPECT_EQ(value_in(gpu_plan({}, "local_rank=device"), "LOCAL_RANK"), "1") << "no GPUs";
}

TEST(Gpus, MissingListMeansAllGpusOfTheStep) {  // --gpus-per-task=1 --gpu-bind=none
  const Plan plan = gpu_plan({{"SLURM_GPUS_ON_NODE", "2"}});
  EXPECT_EQ(value_in(plan, "DDP_LOCAL_DEVICE"), "1");
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(Gpus, NotesTooFewOrTooManyGpusForTheTasks) {
  EXPECT_THAT(gpu_plan({{"CUDA_VISIBLE_DEVICES", "0"}, {"SLURM_GPUS_ON_NODE", "1"}}).notes,
              ElementsAre(HasSubstr("Duplicate GPU")));
  EXPECT_THAT(gpu_plan({{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}, {"SLURM_GPUS_ON_NODE", "4"}}).notes,
              ElementsAre(HasSubstr("leave 2 of its 4 GPUs idle")));
}

TEST(Gpus, NoNotesForTasksThatSeeNoGpus) {
  for (const auto* none : {"", "-1", "NoDevFiles"}) {
    EXPECT_THAT(gpu_plan({{"CUDA_VISIBLE_DEVICES", none}}).notes, IsEmpty()) << none;
  }
}

TEST(Gpus, SupportsOtherVendors) {
  EXPECT_EQ(value_in(gpu_plan({{"ROCR_VISIBLE_DEVICES", "0,1"}}), "DDP_LOCAL_DEVICE"), "1");
  EXPECT_EQ(value_in(gpu_plan({{"ZE_AFFINITY_MASK", "0,1"}}), "DDP_LOCAL_DEVICE"), "1");
  NodeFacts node;
  node.gpus = {{"ROCR_VISIBLE_DEVICES", "0,1"}, {"GPU_DEVICE_ORDINAL", "0,1"}};
  const Plan amd =
      gpu_plan({{"ROCR_VISIBLE_DEVICES", "1"}, {"GPU_DEVICE_ORDINAL", "1"}}, "gpus=shared", node);
  EXPECT_EQ(value_in(amd, "GPU_DEVICE_ORDINAL"), "0,1") << "HIP uses it too";
}

TEST(Gpus, TaskUsesOneMigDevice) {
  const std::string all = "MIG-a,MIG-b";
  const Variables shared = {{"CUDA_VISIBLE_DEVICES", all}, {"SLURM_GPUS_ON_NODE", "2"}};
  const Plan plan = gpu_plan(shared, "local_rank=device", node_with(all));
  EXPECT_EQ(value_in(plan, "DDP_LOCAL_DEVICE"), "0");
  EXPECT_EQ(value_in(plan, "LOCAL_RANK"), "0");
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("gets 2 MIG devices")));
  const Variables own = {{"CUDA_VISIBLE_DEVICES", "MIG-b"}, {"SLURM_GPUS_ON_NODE", "2"}};
  for (const auto* const spec : {"", "gpus=shared"}) {
    const Plan masked = gpu_plan(own, spec, node_with(all));
    EXPECT_EQ(masked.find("CUDA_VISIBLE_DEVICES"), nullptr) << "all tasks would compute on MIG-a";
    EXPECT_EQ(value_in(masked, "DDP_LOCAL_DEVICE"), "0");
    EXPECT_THAT(masked.notes, IsEmpty()) << "no setting would be better";
  }
}

struct OwnGpu {
  const char* why;
  const char* seen;     // CUDA_VISIBLE_DEVICES of the task
  const char* numbers;  // SLURM_STEP_GPUS of the task
  std::uint32_t local_rank;
  const char* own;
  GpuPolicy policy = GpuPolicy::keep;
  const char* node_seen = "";  // the same two values for the node, before SLURM bound the tasks
  const char* node_numbers = "";
  bool hides_gpu_devices = false;
};

void PrintTo(const OwnGpu& row, std::ostream* out) {
  *out << row.why;
}

class OwnGpuOf : public testing::TestWithParam<OwnGpu> {};

TEST_P(OwnGpuOf, TaskHasItsNumberOnTheNode) {
  const OwnGpu& row = GetParam();
  TaskFacts task;
  task.local_rank = row.local_rank;
  if (row.seen != nullptr) task.gpus = {{"CUDA_VISIBLE_DEVICES", row.seen}};
  task.gpu_numbers = row.numbers;
  task.hides_gpu_devices = row.hides_gpu_devices;
  NodeFacts node;
  node.gpus = {{"CUDA_VISIBLE_DEVICES", row.node_seen}};
  node.gpu_numbers = row.node_numbers;
  EXPECT_EQ(own_gpu(task, node, row.policy).value_or("unknown"), row.own);
}

INSTANTIATE_TEST_SUITE_P(
    Table, OwnGpuOf,
    testing::Values(OwnGpu{"all see all", "0,1,2,3", "0,1,2,3", 2, "2"},
                    OwnGpu{"one for each task", "5", "5", 1, "5"},
                    OwnGpu{"one for each task in a cgroup", "0", "5", 1, "5"},
                    OwnGpu{"part of the node in a cgroup", "0,1,2,3", "4,5,6,7", 2, "6"},
                    OwnGpu{"part of the node without a cgroup", "4,5,6,7", "4,5,6,7", 2, "6"},
                    OwnGpu{"more tasks than GPUs", "0,1", "4,5", 3, "5"},
                    OwnGpu{"without SLURM", "2,3", "", 1, "3"},
                    OwnGpu{"by name", "GPU-8f3a,GPU-0b1c", "4,5", 1, "GPU-0b1c"},
                    OwnGpu{"a slice of a GPU", "MIG-8f3a", "0", 0, "MIG-8f3a"},
                    OwnGpu{"the first of several slices", "MIG-8f3a,MIG-1", "0,0", 1, "MIG-8f3a"},
                    OwnGpu{"behind an invalid entry", "2,3,-1,4", "", 2, "2"},
                    OwnGpu{"fewer than SLURM assigned", "0", "4,5", 0, "unknown"},
                    OwnGpu{"none", "", "", 0, "unknown"},
                    OwnGpu{"none, in NVIDIA's notation", "-1", "", 0, "unknown"},
                    OwnGpu{"no list", nullptr, "", 0, "unknown"},
                    OwnGpu{"all GPUs shown again", "1", "5", 1, "5", GpuPolicy::shared, "0,1",
                           "4,5"},
                    OwnGpu{"all GPUs shown again, task uses another one", "0", "4", 1, "5",
                           GpuPolicy::shared, "0,1", "4,5"},
                    OwnGpu{"not shown again, because the files are inaccessible", "0", "4", 1, "4",
                           GpuPolicy::shared, "0,1", "4,5", true},
                    OwnGpu{"not shown again without a request", "0", "4", 1, "4", GpuPolicy::keep,
                           "0,1", "4,5"}));

TEST(Threads, AreTheCoresOfTheTask) {
  const struct {
    CpuFacts cpus;
    std::uint32_t of_step, tasks, ranks, threads;
    const char* why;
  } kCases[] = {
      {{8, 8, 64}, 16, 2, 1, 8, "bound to half of the cores"},
      {{16, 8, 64}, 32, 2, 1, 8, "two hardware threads per core"},
      {{16, 16, 64}, 16, 1, 1, 16, "the only task"},
      {{16, 16, 64}, 16, 4, 1, 4, "confined but not bound: the cores are shared"},
      {{64, 64, 64}, 16, 4, 1, 4, "not confined: the step's cores are divided"},
      {{64, 32, 64}, 16, 1, 1, 8, "the step's hardware threads, as cores"},
      {{2, 2, 2}, 4, 2, 1, 1, "SLURM is configured with more CPUs than exist"},
      {{1, 1, 64}, 16, 16, 1, 1, "one core for each task"},
      {{4, 4, 4}, 4, 9, 1, 1, "at least one"},
      {{64, 64, 64}, 0, 8, 1, 8, "the step's number is unknown: the whole node counts"},
      {{16, 16, 64}, 16, 1, 4, 4, "shared by torchrun's workers"},
      {{64, 64, 128}, 128, 8, 1, 16, "--cpu-bind=sockets: four tasks in each mask"},
      {{32, 32, 128}, 128, 16, 1, 8, "--cpu-bind=ldoms: four tasks in each mask"},
      {{128, 64, 256}, 256, 8, 1, 16, "the same with two hardware threads for each core"},
      {{16, 16, 128}, 128, 8, 1, 16, "disjoint masks lose nothing"},
      {{8, 8, 128}, 128, 8, 1, 8, "smaller than its share, because the user bound the task"},
      {{0, 0, 0}, 0, 1, 1, 1, "a kernel that reports nothing"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(count_threads(c.cpus, c.of_step, c.tasks, c.ranks).threads, c.threads) << c.why;
  }
}

Plan thread_plan(const std::string& spec, const Variables& more = {}) {
  const Variables variables = merged(second_task(), more);
  Facts facts = slurm_facts(variables);
  facts.task.cpus = CpuFacts{4, 4, 8};
  facts.task.cpus_on_node = 8;
  return make_plan(facts, asked(spec), Inherited(lookup_in(variables), facts.step.id));
}

TEST(Threads, AreSetUnlessTheUserDid) {
  EXPECT_EQ(value_in(thread_plan(""), "OMP_NUM_THREADS"), "4");
  const Plan users = thread_plan("", {{"OMP_NUM_THREADS", "1"}});
  EXPECT_TRUE(users.find("OMP_NUM_THREADS")->kept);
  EXPECT_EQ(value_in(users, "OMP_NUM_THREADS"), "1");
  EXPECT_EQ(thread_plan("threads=off").find("OMP_NUM_THREADS"), nullptr);
  EXPECT_EQ(value_in(thread_plan("threads=3", {{"OMP_NUM_THREADS", "1"}}), "OMP_NUM_THREADS"), "3")
      << "the command line wins";
  EXPECT_EQ(slurm_plan(second_task()).find("OMP_NUM_THREADS"), nullptr) << "the mask is unknown";
}

TEST(Threads, NotesCpusThatSrunDidNotPassOn) {
  EXPECT_THAT(thread_plan("", {{"SLURM_CPUS_PER_TASK", "6"}}).notes,
              ElementsAre(HasSubstr("SLURM_CPUS_PER_TASK=6, but this task has 4 CPUs: add -c 6")));
  EXPECT_THAT(thread_plan("", {{"SLURM_CPUS_PER_TASK", "4"}}).notes, IsEmpty());
  EXPECT_THAT(thread_plan("", {{"SLURM_CPUS_PER_TASK", "many"}}).notes, IsEmpty());
}

TEST(Jax, UsesASecondPort) {
  const Plan reserved = gpu_plan({{"SLURM_STEP_RESV_PORTS", "20086-20088"}});
  EXPECT_EQ(value_in(reserved, "JAX_COORDINATOR_ADDRESS"), "p1:20087");
  EXPECT_EQ(value_in(reserved, "JAX_NUM_PROCESSES"), "4");
  EXPECT_EQ(value_in(reserved, "JAX_PROCESS_ID"), "3");
  EXPECT_EQ(value_in(gpu_plan({}), "JAX_COORDINATOR_ADDRESS"), "p1:63368") << "61100 + 4536 / 2";
  EXPECT_EQ(value_in(gpu_plan({{"SLURM_STEP_RESV_PORTS", "20086"}}), "JAX_COORDINATOR_ADDRESS"),
            "p1:20086");
  EXPECT_EQ(value_in(gpu_plan({{"MASTER_ADDR", "fd00::1"}, {"SLURM_STEP_RESV_PORTS", "1-2"}}),
                     "JAX_COORDINATOR_ADDRESS"),
            "[fd00::1]:2");
  EXPECT_TRUE(
      gpu_plan({{"JAX_COORDINATOR_ADDRESS", "mine:1"}}).find("JAX_COORDINATOR_ADDRESS")->kept);
}

}  // namespace
}  // namespace ddp::launch

// SPDX-License-Identifier: Apache-2.0
// The number of a task's GPU on its node, and the number of its threads. The golden vectors have
// the variables that follow from them.
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "spank_plugin/launch/plan/cpu_threads.h"
#include "spank_plugin/launch/plan/gpu_view.h"

namespace ddp::launch {
namespace {

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

}  // namespace
}  // namespace ddp::launch

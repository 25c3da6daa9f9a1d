// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/memory_events.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/temporary_directory.h"

namespace ddp::guard {
namespace {

constexpr const char* kVersion2 = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n";
constexpr const char* kVersion1 =
    "11:devices:/slurm/uid_0/job_7\n"
    "5:cpu,memory:/slurm/uid_0/job_7/step_0/task_0\n"
    "0::/system.slice/slurmd.service\n";

TEST(MemoryEvents, FindsTheFileOfBothVersions) {
  EXPECT_EQ(memory_events_file("/", kVersion2),
            "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events");
  EXPECT_EQ(memory_events_file("/", kVersion1),
            "/sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0/task_0/memory.oom_control");
  EXPECT_EQ(memory_events_file("/", ""), "");
  EXPECT_EQ(memory_events_file("/", "no colons\n7:cpu:/x\n"), "");
}

TEST(MemoryEvents, ReadsACounterByItsWholeName) {
  constexpr const char* kEvents = "low 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n";
  EXPECT_EQ(counter_of(kEvents, "oom_kill"), 2U);
  EXPECT_EQ(counter_of(kEvents, "oom"), 3U);
  EXPECT_EQ(counter_of(kEvents, "oom_k"), std::nullopt);
  EXPECT_EQ(counter_of("oom_kill", "oom_kill"), std::nullopt);
  EXPECT_EQ(counter_of("oom_kill many\n", "oom_kill"), std::nullopt);
  EXPECT_EQ(counter_of("", "oom_kill"), std::nullopt);
}

void write_file(const std::filesystem::path& path, const char* text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(MemoryEvents, ReadsBothCountersBelowARoot) {
  const test::TemporaryDirectory root;
  const std::filesystem::path top = root.path();
  write_file(top / "proc/self/cgroup", "0::/step\n");
  write_file(top / "sys/fs/cgroup/step/memory.events", "oom 1\noom_kill 4\n");
  write_file(top / "proc/vmstat", "nr_free_pages 1\noom_kill 9\n");
  const auto kills = read_out_of_memory_kills(top.string() + "/");
  EXPECT_EQ(kills.in_cgroup, 4U);
  EXPECT_EQ(kills.on_node, 9U);
}

TEST(MemoryEvents, KnowsNothingWithoutFiles) {
  const auto kills = read_out_of_memory_kills("/nowhere/");
  EXPECT_FALSE(kills.in_cgroup);
  EXPECT_FALSE(kills.on_node);
}

}  // namespace
}  // namespace ddp::guard

// SPDX-License-Identifier: Apache-2.0
// The remaining memory: values from control group files, and a real group with a limit that a copy
// of the state would exceed, so that the kernel would kill the process.

#include "hdf5_ckpt/write/memory_headroom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "hdf5_ckpt/write/async_saver.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::TempDirectory;

struct HeadroomCase {
  const char* what;
  std::map<std::string, std::string> files;
  std::optional<std::uint64_t> expected;
};

std::vector<HeadroomCase> headroom_cases() {
  const std::string meminfo = "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n";
  const std::string v2 = "sys/fs/cgroup/job/step/";
  const std::string v1 = "sys/fs/cgroup/memory/slurm/job/";
  return {
      {"nothing is known", {}, {}},
      {"no control group", {{"proc/meminfo", meminfo}}, 8000 * 1024},
      {"version 2, no limit",
       {{"proc/meminfo", meminfo},
        {"proc/self/cgroup", "0::/job/step\n"},
        {v2 + "memory.max", "max\n"},
        {v2 + "memory.current", "100\n"}},
       8000 * 1024},
      {"version 2, a limit",
       {{"proc/meminfo", meminfo},
        {"proc/self/cgroup", "0::/job/step\n"},
        {v2 + "memory.max", "1000000\n"},
        {v2 + "memory.high", "max\n"},
        {v2 + "memory.current", "700000\n"}},
       300000},
      {"version 2, the page cache counts as free",
       {{"proc/self/cgroup", "0::/job/step\n"},
        {v2 + "memory.max", "1000000\n"},
        {v2 + "memory.current", "999999\n"},
        {v2 + "memory.stat",
         "anon 1\ninactive_file 200000\nactive_file 100000\ninactive_file_more 7\n"}},
       300001},
      {"version 2, the job has less left than the step",
       {{"proc/self/cgroup", "0::/job/step\n"},
        {v2 + "memory.max", "1000000\n"},
        {v2 + "memory.current", "100\n"},
        {"sys/fs/cgroup/job/memory.max", "500000\n"},
        {"sys/fs/cgroup/job/memory.current", "450000\n"}},
       50000},
      {"version 2, used up",
       {{"proc/self/cgroup", "0::/job/step\n"},
        {v2 + "memory.max", "1000\n"},
        {v2 + "memory.current", "1001\n"}},
       0},
      {"version 2 in a container that sees its own group as the root",
       {{"proc/self/cgroup", "0::/not/here\n"},
        {"sys/fs/cgroup/memory.max", "1000\n"},
        {"sys/fs/cgroup/memory.current", "400\n"}},
       600},
      {"version 1",
       {{"proc/meminfo", meminfo},
        {"proc/self/cgroup", "9:cpu,cpuacct:/\n4:hugetlb,memory:/slurm/job\n"},
        {v1 + "memory.limit_in_bytes", "2000000\n"},
        {v1 + "memory.usage_in_bytes", "1500000\n"},
        {v1 + "memory.stat", "inactive_file 7\ntotal_inactive_file 100000\n"}},
       600000},
      {"version 1, no limit",
       {{"proc/meminfo", meminfo},
        {"proc/self/cgroup", "4:memory:/slurm/job\n"},
        {v1 + "memory.limit_in_bytes", "9223372036854771712\n"},
        {v1 + "memory.usage_in_bytes", "1500000\n"}},
       8000 * 1024},
      {"nonsense",
       {{"proc/meminfo", "MemAvailable: much\n"},
        {"proc/self/cgroup", "0\n::\n4:memory:/slurm/job\n"},
        {v1 + "memory.limit_in_bytes", "-1\n"},
        {v1 + "memory.usage_in_bytes", ""}},
       {}},
  };
}

TEST(MemoryHeadroom, FollowsTheControlGroupFiles) {
  for (const HeadroomCase& c : headroom_cases()) {
    const TempDirectory root(test::On::memory);
    for (const auto& [name, text] : c.files) {
      fs::create_directories((root / name).parent_path());
      std::ofstream(root / name) << text;
    }
    EXPECT_EQ(memory_headroom(root), c.expected) << c.what;
  }
}

TEST(MemoryHeadroom, IsKnownOnThisMachine) {
  const auto bytes = memory_headroom();
  ASSERT_TRUE(bytes);
  EXPECT_LT(*bytes, 1ULL << 50);
}

constexpr std::uint64_t kMiB = 1ULL << 20;

// Much more than a child of this process needs for other purposes.
constexpr std::uint64_t kState = 160 * kMiB;

// Runs in a child process in the group. Saves the state, with a copy if it fits. Returns 1 with a
// copy, and 0 without.
int save_in_group(const fs::path& group) {
  std::ofstream(group / "cgroup.procs") << ::getpid() << std::flush;
  std::vector<std::byte> state(kState, std::byte{1});
  const ArrayView view{"x", DType::uint8, {state.size()}, state, {}};
  AsyncOptions options;
  options.headroom = [] { return memory_headroom(); };
  AsyncSaver saver(options);
  saver.start({&view, 1}, [](std::span<const ArrayView>) {});
  saver.wait();
  return saver.memory() == 0 ? 0 : 1;
}

// A control group of version 1 or 2 below this process's own, removed by the destructor.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::uint64_t bytes) {
    const std::string name = "hdf5-ckpt-test-" + std::to_string(::getpid());
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const auto path = fs::path(line.substr(line.rfind(':') + 1)).relative_path();
      if (line.find(":memory:") != std::string::npos)
        make(fs::path("/sys/fs/cgroup/memory") / path / name, "memory.limit_in_bytes", bytes);
      else if (line.starts_with("0::"))
        make(fs::path("/sys/fs/cgroup") / path / name, "memory.max", bytes);
      if (works_) return;
    }
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }

  bool works() const { return works_; }
  const fs::path& path() const { return path_; }

 private:
  void make(const fs::path& path, const char* limit, std::uint64_t bytes) {
    std::error_code error;
    if (!fs::create_directory(path, error)) return;
    path_ = path;
    std::ofstream file(path / limit);
    file << bytes << std::flush;
    works_ = file.good();
    if (!works_) ::rmdir(path_.c_str());
  }

  fs::path path_;
  bool works_ = false;
};

TEST(MemoryHeadroom, TooLittleMemoryInAGroupWritesWithoutACopy) {
#ifdef SLURM_DDP_SANITIZED
  GTEST_SKIP() << "the group would count a sanitizer's memory in a child of this process";
#endif
  for (const auto& [limit, expected] : {std::pair{288 * kMiB, 0}, std::pair{1024 * kMiB, 1}}) {
    const MemoryGroup group(limit);
    if (!group.works()) GTEST_SKIP() << "cannot create a memory control group here";
    const pid_t child = ::fork();
    if (child == 0) ::_exit(save_in_group(group.path()));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "killed with a limit of " << limit << " bytes";
    EXPECT_EQ(WEXITSTATUS(status), expected) << limit;
  }
}

TEST(MemoryHeadroom, MemoryAlreadyHeldIsNotRequestedAgain) {
  const auto set = test::small_model(1);
  std::uint64_t left = 1ULL << 30;
  AsyncOptions options;
  options.headroom = [&left] { return std::optional(left); };
  AsyncSaver saver(options);
  int copied = 0;
  const auto views = set.views();
  const auto save = [&] {
    saver.start(views, [&](std::span<const ArrayView> given) {
      copied += given.front().bytes.data() != views.front().bytes.data() ? 1 : 0;
    });
    saver.wait();
  };
  save();
  EXPECT_FALSE(saver.short_of_memory());
  left = 0;
  save();
  EXPECT_EQ(copied, 2);
  AsyncSaver poor(options);
  poor.start(views, [&](std::span<const ArrayView> given) {
    EXPECT_EQ(given.front().bytes.data(), views.front().bytes.data());
  });
  poor.wait();
  EXPECT_TRUE(poor.short_of_memory());
}

}  // namespace
}  // namespace ddp::ckpt

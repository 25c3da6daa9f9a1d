// SPDX-License-Identifier: Apache-2.0
// Kills real processes, and fills real file systems.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/retention.h"
#include "tests/unit/hdf5_ckpt/fault_matrix.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::Names;
using test::small_model;
using test::TempDirectory;
using testing::AllOf;
using testing::HasSubstr;

// Saves `first`, `first` + 1, ... forever, and reports each acknowledged save.
[[noreturn]] void save_until_killed(const fs::path& root, const fs::path& scratch,
                                    std::uint64_t first, int acknowledge) {
  SaveOptions options = test::small_options();
  options.write.threads = 2;
  options.write.scratch_dir = scratch;
  CheckpointDirectory directory(root, options);
  const OwnerTag owner = OwnerTag::of_this_process("crash", 0);
  Retention retention(root, owner);
  for (std::uint64_t step = first;; ++step) {
    directory.save(step, owner, small_model(step).views(), test::test_info());
    if (::write(acknowledge, &step, sizeof step) != sizeof step) ::_exit(2);
    retention.apply({.keep_last = 3});
  }
}

// A process that saves, starting with step 1 and keeping one checkpoint, until the object is
// destroyed.
class Saver {
 public:
  explicit Saver(const fs::path& root) : child_(::fork()) {
    if (child_ != 0) return;
    try {
      Retention retention(root, test::test_owner());
      for (std::uint64_t step = 1;; ++step) {
        test::save_step(root, step);
        retention.apply({.keep_last = 1});
      }
    } catch (...) {
      ::_exit(3);
    }
  }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  ~Saver() {
    ::kill(child_, SIGKILL);
    int status = 0;
    ::waitpid(child_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the saver exited on its own with " << WEXITSTATUS(status);
  }

 private:
  pid_t child_;
};

// Runs save_until_killed and kills it after `delay`, counted from its first acknowledgment or from
// its start. Returns the last acknowledged step; `before` if there was none.
std::uint64_t run_and_kill(const fs::path& root, const fs::path& scratch, std::uint64_t before,
                           bool after_first, std::chrono::nanoseconds delay) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    try {
      save_until_killed(root, scratch, before + 1, ends[1]);
    } catch (...) {
      ::_exit(3);
    }
  }
  ::close(ends[1]);
  std::uint64_t step = before;
  const auto acknowledged = [&] { return ::read(ends[0], &step, sizeof step) == sizeof step; };
  if (after_first) {
    EXPECT_TRUE(acknowledged());
  }
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer exited on its own with " << WEXITSTATUS(status);
  while (acknowledged()) {
  }
  ::close(ends[0]);
  return step;
}

TEST(Crash, LoadsWholeCheckpointsWhileAnotherProcessSavesAndDeletes) {
  const TempDirectory root(test::On::memory);
  const Saver saver(root);
  CheckpointDirectory directory(root);
  while (directory.candidates().empty()) std::this_thread::yield();
  constexpr std::size_t kLoads = 300;
  std::size_t loaded_whole = 0;
  std::size_t told = 0;
  std::uint64_t newest = 0;
  std::set<std::uint64_t> steps;
  while (loaded_whole + told < kLoads) {
    test::ArraySet memory = small_model(1).zeros();
    try {
      const auto loaded = directory.load_newest(memory.targets());
      ASSERT_TRUE(loaded.has_value()) << "a checkpoint existed at all times";
      const std::uint64_t step = loaded->checkpoint.manifest().step;
      ASSERT_EQ(memory, small_model(step)) << step;
      ASSERT_GE(step, newest);
      newest = step;
      steps.insert(step);
      ++loaded_whole;
    } catch (const Error& error) {
      ASSERT_THAT(error.what(), HasSubstr("is whole")) << "neither loaded nor reported";
      ++told;
    }
  }
  EXPECT_GT(steps.size(), 5U) << "the other process saved almost nothing meanwhile";
  EXPECT_GT(loaded_whole, kLoads / 2);
  test::expect_in_fault_matrix("load while another process saves and deletes", kLoads);
}

// Measures one save on this machine, so that the kills hit saves on slow machines too.
std::chrono::nanoseconds time_of_a_save() {
  const TempDirectory root;
  const auto start = std::chrono::steady_clock::now();
  test::save_step(root, 1);
  return std::chrono::steady_clock::now() - start;
}

TEST(Crash, KillAtAnyMomentLosesNothingAcknowledged) {
  const TempDirectory root;
  const TempDirectory scratch(test::On::memory);
  std::mt19937 random(11);
  const auto one_save = time_of_a_save();
  std::uint64_t acknowledged = 0;
  int with_leftovers = 0;
  const int rounds = test::long_tests() ? 1000 : 40;
  for (int round = 0; round < rounds; ++round) {
    const auto delay = one_save * (random() % 300) / 100;
    acknowledged = run_and_kill(root, scratch, acknowledged, round % 4 != 0, delay);
    const auto loaded = CheckpointDirectory(root).newest_verified();
    if (!loaded) {
      ASSERT_EQ(acknowledged, 0U);
      continue;
    }
    const std::uint64_t step = loaded->checkpoint.manifest().step;
    ASSERT_GE(step, acknowledged);
    ASSERT_LE(step, acknowledged + 1);
    ASSERT_TRUE(loaded->skipped.empty()) << loaded->skipped[0];
    ASSERT_TRUE(test::holds(loaded->checkpoint, small_model(step)));
    // The next process cleans up after the dead one, and removes no checkpoint.
    const auto removed =
        remove_leftovers(root, dead_relatives_of(OwnerTag::of_this_process("crash", 0)));
    if (!removed.empty()) ++with_leftovers;
    for (const std::string& name : test::names_in(root))
      ASSERT_TRUE(name == "latest" || name.starts_with("step-")) << name;
    // A checkpoint that was published but not acknowledged counts from now on.
    acknowledged = step;
  }
  EXPECT_GE(acknowledged, 30U);
  test::expect_in_fault_matrix("SIGKILL at a random moment of saving and deleting",
                               static_cast<std::size_t>(rounds));
  EXPECT_GT(with_leftovers, 0) << "no kill interrupted a save";
}

class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(mounted_);
    if (::mount("none", mounted_.c_str(), "tmpfs", 0, "size=8m") != 0)
      GTEST_SKIP() << "mounting a tmpfs of 8 MiB needs root: " << std::strerror(errno);
    is_mounted_ = true;
  }
  void TearDown() override {
    if (is_mounted_) ::umount(mounted_.c_str());
  }

  const TempDirectory top_;
  const fs::path mounted_ = top_ / "disk";
  bool is_mounted_ = false;
};

TEST_F(FullDisk, IsReportedAndKeepsTheLastCheckpoint) {
  test::ArraySet model;
  model.add("w", DType::uint8, {3 << 20});
  for (const std::uint64_t step : {1, 2}) test::save_arrays(mounted_, step, model);
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_THAT(
        error_of([&] { test::save_arrays(mounted_, 3, model); }),
        AllOf(HasSubstr("cannot reserve"), HasSubstr("No space left on device; free space there")));
    EXPECT_EQ(test::names_in(mounted_), (Names{"latest", "step-00000001", "step-00000002"}));
  }
  const auto loaded = CheckpointDirectory(mounted_).newest_verified();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->checkpoint.manifest().step, 2U);
  EXPECT_TRUE(test::holds(loaded->checkpoint, model));
  // After space has been freed, the same save works.
  Retention(mounted_, test::test_owner()).apply({.keep_last = 1});
  EXPECT_NO_THROW(test::save_arrays(mounted_, 3, model));
}

TEST(Crash, FileSizeLimitIsReportedAndDoesNotKill) {
  const TempDirectory root;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const struct rlimit limit = {1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string text;
    try {
      test::ArraySet set;
      set.add("w", DType::uint8, {2 << 20});
      test::save_arrays(root, 1, set);
    } catch (const Error& error) {
      text = error.what();
    }
    ::_exit(::write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string text(1000, '\0');
  const ssize_t size = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "signal " << WTERMSIG(status);
  ASSERT_GT(size, 0);
  text.resize(static_cast<std::size_t>(size));
  EXPECT_THAT(text, AllOf(HasSubstr("with a file size limit of 1048576"), HasSubstr("ulimit -f")));
  EXPECT_TRUE(test::names_in(root).empty());
}

}  // namespace
}  // namespace ddp::ckpt

// SPDX-License-Identifier: Apache-2.0
// Saving in the background. A save contains the state at the time of start().

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <string>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/write/async_saver.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

using test::small_model;
using test::TempDirectory;
using testing::HasSubstr;

TEST(Async, ExcludesLaterChanges) {
  const TempDirectory root(test::On::memory);
  CheckpointDirectory directory(root, test::small_options());
  AsyncSaver saver;
  for (const std::uint64_t step : {1, 2, 3}) {
    test::ArraySet state = small_model(step);
    std::promise<void> changed;
    saver.start(state.views(), [&](std::span<const ArrayView> arrays) {
      changed.get_future().wait();
      directory.save(step, test::test_owner(), arrays, test::test_info());
    });
    for (const MutableArrayView& array : state.targets())
      std::fill(array.bytes.begin(), array.bytes.end(), std::byte{0xEE});
    changed.set_value();
    saver.wait();
    const auto loaded = directory.newest_verified();
    ASSERT_TRUE(loaded);
    EXPECT_TRUE(test::holds(loaded->checkpoint, small_model(step))) << step;
  }
}

TEST(Async, SecondSaveWaitsForTheFirst) {
  AsyncSaver saver;
  const test::ArraySet state = small_model(1);
  std::atomic<int> at_work = 0;
  std::atomic<int> most = 0;
  std::atomic<int> done = 0;
  for (int i = 0; i < 20; ++i)
    saver.start(state.views(), [&](std::span<const ArrayView>) {
      most = std::max(most.load(), ++at_work);
      std::this_thread::yield();
      --at_work;
      ++done;
    });
  saver.wait();
  EXPECT_TRUE(saver.idle());
  EXPECT_EQ(most, 1);
  EXPECT_EQ(done, 20);
}

TEST(Async, ErrorIsReportedOnceAndTheNextSaveWorks) {
  AsyncSaver saver;
  const test::ArraySet state = small_model(1);
  const auto fails = [](std::span<const ArrayView>) { throw Error("the disk is gone"); };
  saver.start(state.views(), fails);
  EXPECT_THAT(error_of([&] { saver.wait(); }), HasSubstr("the disk is gone"));
  EXPECT_NO_THROW(saver.wait());
  saver.start(state.views(), fails);
  bool saved = false;
  const auto works = [&](std::span<const ArrayView>) { saved = true; };
  EXPECT_THAT(error_of([&] { saver.start(state.views(), works); }), HasSubstr("the disk is gone"));
  EXPECT_FALSE(saved);
  saver.start(state.views(), works);
  saver.wait();
  EXPECT_TRUE(saved);
}

TEST(Async, MemoryIsBoundedAndReused) {
  test::ArraySet state;
  state.add("w", DType::uint8, {1 << 20});
  AsyncSaver saver({.budget_bytes = 1 << 20, .copy_threads = 1});
  const std::byte* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    saver.start(state.views(), [&](std::span<const ArrayView> arrays) {
      if (first == nullptr) first = arrays[0].bytes.data();
      EXPECT_EQ(arrays[0].bytes.data(), first);
    });
    saver.wait();
  }
  EXPECT_EQ(saver.memory(), 1U << 20);
  // A state that exceeds the budget is written from its original memory, before start() returns.
  state.add("v", DType::uint8, {1});
  const auto views = state.views();
  bool written = false;
  saver.start(views, [&](std::span<const ArrayView> arrays) {
    EXPECT_EQ(arrays[1].bytes.data(), views[1].bytes.data());
    written = true;
  });
  EXPECT_TRUE(written);
  EXPECT_EQ(saver.memory(), 1U << 20);
}

// Returns the memory of this process that RLIMIT_DATA counts, including a sanitizer's shadow
// memory.
rlim_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmData:")) return std::stoull(line.substr(7)) << 10;
  }
  return 0;
}

TEST(Async, MissingMemoryForTheCopyIsReported) {
  const pid_t child = ::fork();
  if (child == 0) {
    test::ArraySet state;
    state.add("w", DType::uint8, {64 << 20});
    const rlim_t bytes = data_bytes() + (32 << 20);
    const struct rlimit limit = {bytes, bytes};
    ::setrlimit(RLIMIT_DATA, &limit);
    AsyncSaver saver;
    try {
      saver.start(state.views(), [](std::span<const ArrayView>) {});
    } catch (const Error& error) {
      const bool right =
          std::string_view(error.what()).find("save without copying") != std::string_view::npos;
      ::_exit(right && saver.memory() == 0 && saver.idle() ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace ddp::ckpt

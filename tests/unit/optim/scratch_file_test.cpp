// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/offload/scratch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/optim/offload/windows.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::optim {
namespace {

using testing::HasSubstr;

constexpr std::size_t kBytes = 1 << 20;

class ScratchFileTest : public testing::Test {
 protected:
  // Another name of the file, which has none of its own.
  std::string path_in_proc() const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const auto target = std::filesystem::read_symlink(entry.path(), error).string();
      if (target.starts_with(directory_.path().string())) return entry.path().string();
    }
    throw std::logic_error("the file is not open");
  }
  std::int64_t bytes_on_disk() const {
    struct stat status = {};
    if (::stat(path_in_proc().c_str(), &status) != 0) throw std::logic_error("stat");
    return status.st_blocks * 512;
  }

  test::TemporaryDirectory directory_{std::filesystem::current_path()};
  std::shared_ptr<ScratchFile> file_ = ScratchFile::open_in(directory_.path());
};

TEST_F(ScratchFileTest, HasNoName) {
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(ScratchFileTest, ReadsAndWritesWhatIsMapped) {
  const auto a = file_->allocate(kBytes);
  const auto b = file_->allocate(5);
  EXPECT_EQ(static_cast<int>(a.get()[kBytes - 1]), 0);
  std::memcpy(a.get() + 100, "mapped", 6);
  std::memcpy(b.get(), "other", 5);
  std::string text(6, ' ');
  file_->read(a.get() + 100, text.data(), 6);
  EXPECT_EQ(text, "mapped");
  file_->write("WRITE", b.get(), 5);
  EXPECT_EQ(std::memcmp(b.get(), "WRITE", 5), 0);
  EXPECT_EQ(std::memcmp(a.get() + 100, "mapped", 6), 0);
}

TEST_F(ScratchFileTest, KnowsItsMemory) {
  const auto a = file_->allocate(kBytes);
  EXPECT_TRUE(file_->holds(a.get()));
  EXPECT_TRUE(file_->holds(a.get() + kBytes - 1));
  EXPECT_FALSE(file_->holds(a.get() + kBytes));
  EXPECT_FALSE(file_->holds(a.get() - 1));
  int other = 0;
  EXPECT_FALSE(file_->holds(&other));
  EXPECT_THROW(file_->read(&other, &other, 1), std::logic_error);
  EXPECT_THROW(file_->read(a.get() + kBytes - 1, &other, 2), std::logic_error);
}

TEST_F(ScratchFileTest, ReservesRoomAndGivesItBack) {
  auto a = file_->allocate(kBytes);
  const auto b = file_->allocate(kBytes);
  EXPECT_GE(bytes_on_disk(), static_cast<std::int64_t>(2 * kBytes));
  EXPECT_EQ(file_->bytes(), static_cast<std::int64_t>(2 * kBytes));
  const auto* const first = a.get();
  a.reset();
  EXPECT_FALSE(file_->holds(first));
  EXPECT_EQ(file_->bytes(), static_cast<std::int64_t>(kBytes));
  EXPECT_LT(bytes_on_disk(), static_cast<std::int64_t>(kBytes + kBytes / 2));
}

TEST_F(ScratchFileTest, NamesTheLimitOfAFilesSize) {
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = kBytes;
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto text = error_of<RuntimeError>([&] {
    const auto a = file_->allocate(kBytes);
    const auto b = file_->allocate(kBytes);
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(text, "the optimizer's state needs a file of 3 MiB or more in " +
                      directory_.path().string() +
                      ", but the limit of a file's size is 1 MiB (ulimit -f); raise it");
}

TEST_F(ScratchFileTest, NamesADiskThatLosesData) {
  const auto a = file_->allocate(kBytes);
  std::filesystem::resize_file(path_in_proc(), 4096);
  std::vector<std::byte> into(kBytes);
  EXPECT_EQ(error_of<RuntimeError>([&] { file_->read(a.get(), into.data(), kBytes); }),
            "cannot read the optimizer's state from its file in " + directory_.path().string() +
                " (the file has become shorter)");
}

class Windows : public ScratchFileTest {
 protected:
  static constexpr std::size_t kCount = 1000;  // values of a window
  static constexpr std::size_t kWindows = 10;

  // The values are their own numbers.
  Windows() {
    for (std::size_t i = 0; i < kWindows * kCount; ++i) all_[i] = static_cast<float>(i);
  }
  // Each with two ranges, which values_ points to.
  std::vector<Window> windows() {
    std::vector<Window> result;
    for (std::size_t i = 0; i < kWindows; ++i) {
      values_[i] = {all_ + i * kCount, all_ + i * kCount + 600};
      result.push_back({{&values_[i][0], 600}, {&values_[i][1], 400}});
    }
    return result;
  }

  std::shared_ptr<std::byte> memory_ = file_->allocate(kWindows * kCount * sizeof(float));
  float* all_ = reinterpret_cast<float*>(memory_.get());
  std::array<std::array<float*, 2>, kWindows> values_ = {};
  WindowStream stream_{*file_};
};

TEST_F(Windows, AreReadComputedAndWrittenInOrder) {
  std::vector<std::size_t> order;
  for (int round = 0; round < 2; ++round) {
    auto all = windows();
    stream_.run(all, [&](std::size_t window) {
      if (round == 0) order.push_back(window);
      const auto [first, second] = values_[window];
      EXPECT_FALSE(file_->holds(first));
      for (std::size_t i = 0; i < 600; ++i) first[i] += 0.25F;
      for (std::size_t i = 0; i < 400; ++i) second[i] += 0.25F;
    });
    stream_.finish();
  }
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  for (std::size_t i = 0; i < kWindows * kCount; ++i) {
    ASSERT_EQ(all_[i], static_cast<float>(i) + 0.5F) << i;
  }
}

// The write of the last window continues beside the next ones.
TEST_F(Windows, MayFollowOtherWindows) {
  for (std::size_t i = 0; i < kWindows; ++i) {
    auto all = windows();
    std::vector<Window> one{all[i]};
    stream_.run(one, [&](std::size_t) {
      for (std::size_t k = 0; k < 400; ++k) values_[i][1][k] += 0.5F;
    });
  }
  stream_.finish();
  for (std::size_t i = 0; i < kWindows * kCount; ++i) {
    ASSERT_EQ(all_[i], static_cast<float>(i) + (i % kCount >= 600 ? 0.5F : 0)) << i;
  }
}

TEST_F(Windows, StopAtAnError) {
  const auto fail = [](std::size_t window) {
    if (window == 4) throw RuntimeError("a bad window");
  };
  auto all = windows();
  EXPECT_THROW(stream_.run(all, fail), RuntimeError);
}

TEST_F(Windows, ReportAnErrorOfTheDisk) {
  std::filesystem::resize_file(path_in_proc(), 4096);
  auto all = windows();
  EXPECT_THAT(error_of<RuntimeError>([&] { stream_.run(all, [](std::size_t) {}); }),
              HasSubstr("the file has become shorter"));
}

TEST_F(Windows, MayBeNone) {
  std::vector<Window> none;
  stream_.run(none, [](std::size_t) { FAIL(); });
}

}  // namespace
}  // namespace ddp::optim

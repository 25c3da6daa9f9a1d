// SPDX-License-Identifier: Apache-2.0
#include "base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/errors.h"
#include "tests/unit/temporary_directory.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

class AtomicFileTest : public testing::Test {
 protected:
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  test::TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path();
  fs::path file_ = directory_ / "steps.csv";
};

TEST_F(AtomicFileTest, ReplacesTheWholeFile) {
  test::write(file_, "old");
  replace_file(file_, "new");
  EXPECT_EQ(contents(file_), "new");
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFileTest, UnpublishedFileDoesNotReplaceTheOldOne) {
  test::write(file_, "old");
  {
    AtomicFile file(file_);
    file.write("half");
    EXPECT_EQ(files(), 2U);
  }
  EXPECT_EQ(contents(file_), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFileTest, PublishedFileStaysOpenAtItsEnd) {
  AtomicFile file(file_);
  file.write("head\n");
  const FileDescriptor open = file.publish();
  EXPECT_TRUE(write_all(open.get(), "more\n"));
  EXPECT_EQ(contents(file_), "head\nmore\n");
}

TEST_F(AtomicFileTest, ModeFollowsTheUmask) {
  const mode_t before = ::umask(027);
  replace_file(file_, "x");
  ::umask(before);
  EXPECT_EQ(fs::status(file_).permissions(), fs::perms(0640));
}

TEST_F(AtomicFileTest, PlantedLinkIsReplacedNotFollowed) {
  const fs::path treasure = directory_ / "treasure";
  test::write(treasure, "precious");
  fs::create_symlink(treasure, file_);
  fs::create_symlink(treasure, directory_ / "steps.csv.tmp");
  replace_file(file_, "report");
  EXPECT_EQ(contents(treasure), "precious");
  EXPECT_FALSE(fs::is_symlink(file_));
}

TEST_F(AtomicFileTest, FailureNamesThePathAndLeavesNoFile) {
  EXPECT_THAT([&] { replace_file(directory_ / "none" / "run.json", "x"); },
              testing::ThrowsMessage<RuntimeError>(
                  "cannot write " + (directory_ / "none" / "run.json").string() +
                  ": creating a temporary file failed: No such file or directory"));
  fs::create_directory(file_);
  EXPECT_THROW(replace_file(file_, "x"), RuntimeError);
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFileTest, NonRegularFileIsWrittenInPlace) {
  EXPECT_NO_THROW(write_file("/dev/null", "x"));
  EXPECT_THROW(write_file("/dev/full", "x"), RuntimeError);
  write_file(file_, "x");
  EXPECT_EQ(contents(file_), "x");
}

}  // namespace
}  // namespace ddp

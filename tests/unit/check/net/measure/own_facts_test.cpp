// SPDX-License-Identifier: Apache-2.0
// Tests the facts of a node with synthetic file trees.
#include "ddp_runtime/check/net/measure/own_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/unit/check/environment_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::check {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::Not;

class OwnFacts : public testing::Test {
 protected:
  void write(const fs::path& file, const std::string& text) { test::write(root_ / file, text); }
  FactSources sources() const {
    return {.root = root_, .library_directories = {root_ / "first", root_ / "second"}};
  }

  test::TemporaryDirectory temporary_;
  fs::path root_ = temporary_.path();
};

TEST_F(OwnFacts, DescribesTheMachineWithoutAnyFile) {
  const auto facts = own_facts(sources());
  for (const char* fact : {"kernel", "cpus", "memory_GiB", "libc"}) {
    EXPECT_THAT(facts, Contains(testing::Pair(fact, Not(testing::IsEmpty()))));
  }
  EXPECT_EQ(facts.size(), 4U) << "missing facts have no entry";
}

TEST_F(OwnFacts, DriversFirmwareAndSystemAreRead) {
  write("sys/module/nvidia/version", "535.104.05\n");
  write("sys/module/mlx5_core/version", "23.10-0.5.5\n");
  write("sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n");
  write("sys/class/infiniband/mlx5_1/fw_ver", "28.39.2048\n");
  write("etc/os-release",
        "ID=rocky\nPRETTY_NAME=\"Rocky Linux 9.4 (Blue Onyx)\"\nVERSION_ID=9.4\n");
  const auto facts = own_facts(sources());
  EXPECT_THAT(facts, Contains(testing::Pair("driver.nvidia", "535.104.05")));
  EXPECT_THAT(facts, Contains(testing::Pair("driver.mlx5_core", "23.10-0.5.5")));
  EXPECT_THAT(facts, Contains(testing::Pair("firmware.mlx5_0", "28.39.1002")));
  EXPECT_THAT(facts, Contains(testing::Pair("firmware.mlx5_1", "28.39.2048")));
  EXPECT_THAT(facts, Contains(testing::Pair("system", "Rocky Linux 9.4 (Blue Onyx)")));
}

TEST_F(OwnFacts, LibraryIsFoundInTheFirstDirectoryThatHasIt) {
  write("second/libnccl.so.2.18.3", "");
  fs::create_symlink("libnccl.so.2.18.3", root_ / "second/libnccl.so.2");
  EXPECT_THAT(own_facts(sources()),
              Contains(testing::Pair("library.libnccl", "libnccl.so.2.18.3")));
  write("first/libnccl.so.2.21.5", "");
  fs::create_symlink("libnccl.so.2.21.5", root_ / "first/libnccl.so.2");
  EXPECT_THAT(own_facts(sources()),
              Contains(testing::Pair("library.libnccl", "libnccl.so.2.21.5")));
  fs::remove(root_ / "first/libnccl.so.2.21.5");
  EXPECT_THAT(own_facts(sources()), Contains(testing::Pair("library.libnccl", "libnccl.so.2.18.3")))
      << "a dangling link is skipped";
}

TEST_F(OwnFacts, BoundsExternalTexts) {
  write("sys/module/nvidia/version", "535\x1b[31m<b>\nsecond line\n");
  write("sys/module/ib_core/version", std::string(100000, 'x'));
  fs::create_directories(root_ / "sys/module/efa/version");
  write("etc/os-release", "PRETTY_NAME=" + std::string(1000, 'y'));
  for (int i = 0; i < 200; ++i) {
    write("sys/class/infiniband/mlx5_" + std::to_string(i) + "/fw_ver", "1\n");
  }
  const auto facts = own_facts(sources());
  EXPECT_THAT(facts, Contains(testing::Pair("driver.nvidia", "535?[31m<b>")));
  EXPECT_THAT(facts, Contains(testing::Pair("driver.ib_core", std::string(80, 'x'))));
  EXPECT_THAT(facts, Not(Contains(testing::Key("driver.efa"))));
  EXPECT_THAT(facts, Contains(testing::Pair("system", std::string(80, 'y'))));
  EXPECT_EQ(facts.size(), 4U + 3U + 64U);
}

TEST(FactSources, UserDirectoriesComeFirst) {
  const auto directories = [](const Variables& variables) {
    return fact_sources(environment_of(variables)).library_directories;
  };
  const auto usual = directories({});
  EXPECT_THAT(usual, Contains("/usr/lib64"));
  auto expected = usual;
  expected.insert(expected.begin(), {"/opt/nccl/lib", "/b"});
  EXPECT_EQ(directories({{"LD_LIBRARY_PATH", "/opt/nccl/lib::/b:"}}), expected);
  std::string many;
  for (int i = 0; i < 10000; ++i) many += "/x:";
  EXPECT_EQ(directories({{"LD_LIBRARY_PATH", many}}).size(), usual.size() + 64);
}

}  // namespace
}  // namespace ddp::check

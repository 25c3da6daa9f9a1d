// SPDX-License-Identifier: Apache-2.0
// Tests error counters: reading them from /sys, finding increases, and storing values in a file.
#include "ddp_runtime/check/findings/counters_check.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::check {
namespace {

class CountersTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    test::write(directory_ / path, text);
  }

  test::TemporaryDirectory temporary_;
  std::filesystem::path directory_ = temporary_.path();
};

TEST_F(CountersTest, ReadsInterfacesAndPorts) {
  write("class/net/eth0/statistics/rx_crc_errors", "7\n");
  write("class/net/eth0/statistics/rx_errors", "no number\n");
  write("class/net/lo/statistics/rx_errors", "9\n");
  write("class/infiniband/mlx5_0/ports/1/counters/symbol_error", "3\n");
  EXPECT_EQ(read_counters(directory_),
            (Counters{{"eth0 rx_crc_errors", 7}, {"mlx5_0:1 symbol_error", 3}}));
  EXPECT_TRUE(read_counters(directory_ / "nowhere").empty());
}

TEST(Counters, OnlyIncreasesAreReported) {
  const Counters before{{"a", 5}, {"b", 100}, {"c", 2}};
  EXPECT_EQ(evaluate_counters(before, before, "counters", "")[0].severity, Severity::ok);
  const auto findings =
      evaluate_counters(before, {{"a", 8}, {"b", 4}, {"c", 2}, {"d", 9}}, "x", "now");
  ASSERT_EQ(findings.size(), 2U);  // d has no earlier value
  EXPECT_EQ(findings[0].device, "a");
  EXPECT_EQ(std::get<double>(findings[0].value), 3);
  EXPECT_EQ(findings[0].severity, Severity::warning);
  EXPECT_EQ(std::get<double>(findings[1].value), 4);  // b was reset
}

TEST_F(CountersTest, KeepsValuesBetweenRuns) {
  const std::string file = directory_ / "kept";
  EXPECT_EQ(compare_with_kept_counters(file, {{"a", 5}})[0].severity, Severity::ok);
  EXPECT_EQ(compare_with_kept_counters(file, {{"a", 6}})[0].severity, Severity::warning);
  EXPECT_EQ(compare_with_kept_counters(file, {{"a", 6}})[0].severity, Severity::ok);
}

TEST_F(CountersTest, AnUnreadableFileIsUnknownOnce) {
  write("kept", "[1, 2");
  const std::string file = directory_ / "kept";
  EXPECT_EQ(compare_with_kept_counters(file, {{"a", 5}})[0].severity, Severity::unknown);
  EXPECT_EQ(compare_with_kept_counters(file, {{"a", 5}})[0].severity, Severity::ok);
  EXPECT_THROW(compare_with_kept_counters(directory_ / "no/where", {}), RuntimeError);
}

// Root writes the file, and the directory may belong to another user.
TEST_F(CountersTest, SymbolicLinksAreNotFollowed) {
  write("victim", "precious\n");
  const std::string file = directory_ / "kept";
  std::filesystem::create_symlink(directory_ / "victim", file + ".new");
  compare_with_kept_counters(file, {{"a", 5}});
  std::filesystem::remove(file);
  std::filesystem::create_symlink(directory_ / "victim", file);
  compare_with_kept_counters(file, {{"a", 5}});
  std::ifstream victim(directory_ / "victim");
  std::string text;
  victim >> text;
  EXPECT_EQ(text, "precious");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(file)));
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/dev/null", file);
  compare_with_kept_counters(file, {{"a", 5}});
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(file)));
}

TEST(Counters, AreSelectedByDevice) {
  const Counters all{{"eth0 rx_errors", 1}, {"eth01 rx_errors", 2}, {"mlx5_0:1 symbol_error", 3}};
  EXPECT_EQ(counters_of(all, {"eth0", "mlx5_0:1"}),
            (Counters{{"eth0 rx_errors", 1}, {"mlx5_0:1 symbol_error", 3}}));
  EXPECT_EQ(counters_of(all, {}), all);
}

}  // namespace
}  // namespace ddp::check

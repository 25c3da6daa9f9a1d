// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/distinct_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/error_of.h"

namespace ddp::tools {
namespace {

std::string refused(const std::string& json, const std::string& exclude) {
  return error_of([&] { require_distinct({{"--json", json}, {"--exclude-file", exclude}}); });
}

TEST(DistinctFiles, TwoOptionsWithOneFileAreRefused) {
  EXPECT_EQ(refused("a", "a"),
            "--json and --exclude-file both write the file a; give each its own");
  EXPECT_NE(refused("out/../a", "./a"), "");
  EXPECT_NE(refused("a", (std::filesystem::current_path() / "a").string()), "");
}

TEST(DistinctFiles, OthersAreAccepted) {
  EXPECT_EQ(refused("a", "b"), "");
  EXPECT_EQ(refused("a", "out/a"), "");
  EXPECT_EQ(refused("", ""), "") << "not given";
  EXPECT_EQ(refused("/dev/null", "/dev/null"), "");
  EXPECT_EQ(refused("/dev/stdout", "/dev/stdout"), "") << "one document after the other";
}

}  // namespace
}  // namespace ddp::tools

// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/launch_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The difference that rank 2 finds between its launches and those of rank 1.
std::optional<std::string> difference(const std::vector<std::string>& mine,
                                      const std::vector<std::string>& theirs) {
  LaunchLog here;
  LaunchLog there;
  for (const auto& text : mine) here.add(text, text);
  for (const auto& text : theirs) there.add(text, text);
  return here.difference(there.frame(false), {2, 1});
}

TEST(LaunchLog, EqualOrdersAgree) {
  EXPECT_EQ(difference({}, {}), std::nullopt);
  EXPECT_EQ(difference({"a", "b"}, {"a", "b"}), std::nullopt);
}

TEST(LaunchLog, RankMayBeBehind) {
  EXPECT_EQ(difference({"a"}, {"a", "b", "c"}), std::nullopt);
  EXPECT_EQ(difference({"a", "b", "c"}, {"a"}), std::nullopt);
  EXPECT_EQ(difference({}, {"a"}), std::nullopt);
}

TEST(LaunchLog, NamesTheFirstDifference) {
  EXPECT_EQ(difference({"a", "b", "c", "d"}, {"a", "c", "b", "d"}),
            "ranks 1 and 2 launched collectives in different orders on their GPUs: in launch 1, "
            "rank 2 started b, but rank 1 started c; all ranks must call the collectives of all "
            "channels in one order");
  EXPECT_THAT(*difference({"a"}, {"b"}), HasSubstr("in launch 0, rank 2 started a"));
}

TEST(LaunchLog, FindsADifferenceThatIsLongAgo) {
  std::vector<std::string> mine = {"a", "b"};
  std::vector<std::string> theirs = {"b", "a"};
  for (int i = 0; i < 10'000; ++i) {
    mine.push_back("step");
    theirs.push_back("step");
  }
  EXPECT_THAT(*difference(mine, theirs), HasSubstr("in or before launch 9978"));
}

TEST(LaunchLog, NeighborThatIsFarAheadIsComparedLater) {
  std::vector<std::string> theirs(5'000, "step");
  EXPECT_EQ(difference({"other"}, theirs), std::nullopt);
  std::vector<std::string> mine(5'000, "step");
  mine.front() = "other";
  EXPECT_TRUE(difference(mine, theirs));
}

// The text comes from another rank.
TEST(LaunchLog, CutsAndCleansTexts) {
  const auto text = difference({"a"}, {std::string(1000, 'x') + "end"});
  EXPECT_THAT(*text, AllOf(HasSubstr("xxx"), testing::Not(HasSubstr("end"))));
  EXPECT_THAT(*difference({"a"}, {"b\x1b"}), HasSubstr("rank 1 started b?"));
}

TEST(LaunchLog, HashDependsOnTheSignatureOnly) {
  LaunchLog a;
  LaunchLog b;
  a.add("sum of 4", "bucket 1");
  b.add("sum of 4", "bucket 2");
  EXPECT_EQ(a.hash(), b.hash());
  b.add("sum of 4", "bucket 3");
  EXPECT_NE(a.hash(), b.hash());
  EXPECT_EQ(b.launched(), 2U);
}

}  // namespace
}  // namespace ddp::comm

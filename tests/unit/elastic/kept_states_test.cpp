// SPDX-License-Identifier: Apache-2.0
// What a start can be restored from, after nodes were lost.
#include "ddp_runtime/elastic/kept_states.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::elastic {
namespace {

struct Case {
  const char* name;
  std::int64_t disk;    // -1: none
  std::int64_t memory;  // of a, b and c
  bool divided;
  std::vector<std::string> lost;
  std::vector<std::string> nodes;
  State expected;
};

class Kept : public testing::TestWithParam<Case> {};

TEST_P(Kept, IsRestoredFromTheNewestThatTheNodesHave) {
  const auto& [name, disk, memory, divided, lost, nodes, expected] = GetParam();
  KeptStates kept;
  if (disk >= 0) kept.add({Tier::disk, disk}, {"a", "b", "c"});
  kept.add({Tier::memory, memory}, {"a", "b", "c"}, divided);
  for (const auto& node : lost) kept.lost(node);
  EXPECT_EQ(kept.best_for(nodes), expected);
}

const State kDisk{Tier::disk, 8};
const State kMemory{Tier::memory, 10};

INSTANTIATE_TEST_SUITE_P(
    States, Kept,
    testing::Values(Case{"OnAllNodes", 8, 10, false, {}, {"a", "b", "c"}, kMemory},
                    Case{"AnyNodeHasAllOfIt", 8, 10, false, {"a", "b"}, {"c", "d"}, kMemory},
                    Case{"AReplacementHasNothing", 8, 10, false, {"a", "b", "c"}, {"d"}, kDisk},
                    Case{"OtherNodesHaveNothing", 8, 10, false, {}, {"d", "e"}, kDisk},
                    Case{"DividedOnAllNodes", 8, 10, true, {}, {"c", "a", "b"}, kMemory},
                    Case{"DividedAndOnMoreNodes", 8, 10, true, {}, {"a", "b", "c", "d"}, kMemory},
                    Case{"DividedAndAPartIsLost", 8, 10, true, {"b"}, {"a", "c", "d"}, kDisk},
                    Case{"DividedAndAPartIsElsewhere", 8, 10, true, {}, {"a", "c"}, kDisk},
                    Case{"AnotherNodeIsLost", 8, 10, true, {"d"}, {"a", "b", "c"}, kMemory},
                    Case{"OfTheSameStep", 10, 10, false, {}, {"a"}, {Tier::disk, 10}},
                    Case{"TheDiskIsNewer", 12, 10, false, {}, {"a"}, {Tier::disk, 12}},
                    Case{"NothingOnDisk", -1, 0, false, {}, {"a"}, {Tier::memory, 0}},
                    Case{"NothingAtAll", -1, 10, true, {"a"}, {"b", "c"}, {}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(KeptOnDisk, IsWhatOutlivesTheJob) {
  KeptStates kept;
  kept.add(kMemory, {"a"});
  EXPECT_TRUE(kept.any());
  EXPECT_EQ(kept.on_disk(), State{});
  kept.add(kDisk, {"a"});
  EXPECT_EQ(kept.on_disk(), kDisk);
}

TEST(KeptInMemory, IsTheNewestAlsoIfItIsLost) {
  KeptStates kept;
  EXPECT_EQ(kept.newest(), State{});
  kept.add(kDisk, {"a"});
  kept.add(kMemory, {"a", "b"}, true);
  EXPECT_TRUE(kept.divided());
  EXPECT_EQ(kept.holders_among({"c", "b", "a"}), (std::vector<std::string>{"b", "a"}));
  kept.lost("a");
  EXPECT_TRUE(kept.holders_among({"c", "b", "a"}).empty());
  EXPECT_EQ(kept.best_for({"a", "b"}), kDisk);
  EXPECT_EQ(kept.newest(), kMemory);
  kept.add({Tier::disk, 10}, {"a"});
  EXPECT_EQ(kept.newest(), (State{Tier::disk, 10}));
}

}  // namespace
}  // namespace ddp::elastic

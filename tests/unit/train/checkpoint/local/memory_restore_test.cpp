// SPDX-License-Identifier: Apache-2.0
// Which copy in the memory of nodes a start restores, and from which node.
#include "ddp_runtime/train/checkpoint/local/memory_restore.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::train {
namespace {

using Way = RestorePlan::Way;
using Found = std::vector<std::vector<FoundShard>>;

const ckpt::OwnerTag kOwner{"1", 0, "node1", 10};

// A file of a copy. The checkpoint before it is step 20.
FoundShard part(std::uint64_t step, const std::string& file, std::uint64_t parts) {
  ckpt::CheckpointInfo info;
  info.lineage = ckpt::Lineage{"run", 20, {}};
  return {{step, kOwner}, parts, file, 100, info};
}

FoundShard whole(std::uint64_t step) {
  return part(step, "model.h5", 1);
}

struct Case {
  const char* name;
  Found found;  // by rank: 0 and 2 are the lowest of two nodes
  bool directly = true;
  int step = -1;  // -1: none
  Way way = Way::here;
  std::size_t holder = 0;
};

class Restore : public testing::TestWithParam<Case> {};

TEST_P(Restore, TakesTheNewestCopyTheShortestWay) {
  const auto& expected = GetParam();
  const NewestCheckpoint newest{20, kOwner.text(), ckpt::Lineage{"run", {}, {}}};
  std::vector<std::string> notes;
  const auto plan = plan_restore(expected.found, newest, expected.directly, notes);
  ASSERT_EQ(plan ? static_cast<int>(plan->copy.save.step) : -1, expected.step);
  if (!plan) return;
  EXPECT_EQ(plan->way, expected.way);
  if (plan->way == Way::send) {
    EXPECT_EQ(plan->holder, expected.holder);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Copies, Restore,
    testing::Values(
        Case{"NothingWasLeft", {{}, {}, {}, {}}},
        Case{"OfBothNodes", {{whole(30)}, {}, {whole(30)}, {}}, true, 30, Way::here},
        Case{"OfTheFirstNode", {{whole(30)}, {}, {}, {}}, true, 30, Way::here},
        Case{"OfTheOtherNode", {{}, {}, {whole(30)}, {}}, true, 30, Way::send, 2},
        Case{"TheNewerOne", {{whole(40), whole(30)}, {}, {}, {}}, true, 40, Way::here},
        Case{"TheNewerOneIsElsewhere", {{whole(30)}, {}, {whole(40)}, {}}, true, 40, Way::send, 2},
        Case{"ACheckpointOfTheSameStep", {{whole(20)}, {}, {whole(20)}, {}}},
        Case{"ANewerCheckpoint", {{whole(10)}, {}, {whole(10)}, {}}},
        Case{"PartsOfOneNode",
             {{part(30, "a.h5", 2), part(30, "b.h5", 2)}, {}, {}, {}},
             true,
             30,
             Way::here},
        Case{"PartsOfTwoNodes",
             {{part(30, "a.h5", 2)}, {}, {part(30, "b.h5", 2)}, {}},
             true,
             30,
             Way::copy},
        Case{"PartsOfTheOtherNode",
             {{}, {}, {part(30, "a.h5", 2), part(30, "b.h5", 2)}, {}},
             true,
             30,
             Way::copy},
        Case{"APartIsLost",
             {{part(30, "a.h5", 2), part(25, "a.h5", 2)}, {}, {part(25, "b.h5", 2)}, {}},
             true,
             25,
             Way::copy},
        Case{"AStartingPointWasNamed", {{whole(30)}, {}, {whole(30)}, {}}, false, 30, Way::copy}),
    [](const auto& one) { return std::string(one.param.name); });

// The order after damage: another node, an older copy, nothing.
TEST(RestoreAfterDamage, TriesAnotherNodeAndThenTheCopyBefore) {
  const NewestCheckpoint newest{20, kOwner.text(), ckpt::Lineage{"run", {}, {}}};
  Found found = {{whole(40), whole(30)}, {}, {whole(40)}, {}};
  std::vector<std::string> notes;
  leave_out_at(0, {40, kOwner}, found);
  auto plan = plan_restore(found, newest, true, notes);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->copy.save.step, 40U);
  EXPECT_EQ(plan->way, Way::send);
  EXPECT_EQ(plan->holder, 2U);
  leave_out_at(2, {40, kOwner}, found);
  plan = plan_restore(found, newest, true, notes);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->copy.save.step, 30U);
  EXPECT_EQ(plan->way, Way::here);
  leave_out_at(0, {30, kOwner}, found);
  EXPECT_FALSE(plan_restore(found, newest, true, notes));
}

}  // namespace
}  // namespace ddp::train

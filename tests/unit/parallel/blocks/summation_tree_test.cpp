// SPDX-License-Identifier: Apache-2.0
// The order in which sums of blocks are added. A sum is written as text, so that its order shows.
#include "ddp_runtime/parallel/blocks/summation_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp {
namespace {

using testing::ElementsAre;

void join_texts(std::string& left, std::string&& right) {
  left = "(" + left + right + ")";
}

// The sum of all blocks if `ranks` ranks have them in a row, and each sends what it has added up.
std::string sum_of(std::int64_t blocks, std::int64_t ranks) {
  const SummationTree tree(blocks);
  const auto each = blocks / ranks;
  PartialSums<std::string> all(tree);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    PartialSums<std::string> own(tree);
    for (std::int64_t i = 0; i < each; ++i) {
      const auto block = rank * each + i;
      own.push({0, block}, std::string(1, static_cast<char>('a' + block)), join_texts);
    }
    for (auto& entry : own.entries()) all.push(entry.node, std::move(entry.sum), join_texts);
  }
  EXPECT_TRUE(all.complete());
  return all.entries().front().sum;
}

TEST(SummationTree, AddsPairsOfPairs) {
  EXPECT_EQ(sum_of(1, 1), "a");
  EXPECT_EQ(sum_of(2, 1), "(ab)");
  EXPECT_EQ(sum_of(4, 1), "((ab)(cd))");
  EXPECT_EQ(sum_of(5, 1), "(((ab)(cd))e)");
  EXPECT_EQ(sum_of(6, 1), "(((ab)(cd))(ef))");
  EXPECT_EQ(sum_of(7, 1), "(((ab)(cd))((ef)g))");
  EXPECT_EQ(sum_of(12, 1), "((((ab)(cd))((ef)(gh)))((ij)(kl)))");
}

TEST(SummationTree, HasTheSameSumForAnyNumberOfRanks) {
  for (std::int64_t blocks = 1; blocks <= 64; ++blocks) {
    const auto expected = sum_of(blocks, 1);
    for (std::int64_t ranks = 2; ranks <= blocks; ++ranks) {
      if (blocks % ranks != 0) continue;
      EXPECT_EQ(sum_of(blocks, ranks), expected) << ranks;
    }
  }
}

TEST(SummationTree, LeavesToOthersOnlyWhatNeedsSeveralRanks) {
  const SummationTree tree(12);
  EXPECT_THAT(nodes_of(tree, 0, 3), ElementsAre(TreeNode{1, 0}, TreeNode{0, 2}));
  EXPECT_THAT(nodes_of(tree, 3, 6), ElementsAre(TreeNode{0, 3}, TreeNode{1, 2}));
  EXPECT_THAT(nodes_of(tree, 6, 9), ElementsAre(TreeNode{1, 3}, TreeNode{0, 8}));
  EXPECT_THAT(nodes_of(tree, 9, 12), ElementsAre(TreeNode{0, 9}, TreeNode{1, 5}));
  EXPECT_THAT(nodes_of(tree, 8, 12), ElementsAre(TreeNode{3, 1})) << "it moves up alone";
  EXPECT_THAT(nodes_of(tree, 0, 12), ElementsAre(tree.root()));
}

TEST(SummationTree, NeedsFewNodesForManyBlocks) {
  const std::int64_t each = 1000;
  const std::int64_t ranks = 4000;
  const SummationTree tree(each * ranks);
  std::size_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; rank += 97) {
    most = std::max(most, nodes_of(tree, rank * each, (rank + 1) * each).size());
  }
  EXPECT_LE(most, 18U) << "two of each of nine levels";
}

}  // namespace
}  // namespace ddp

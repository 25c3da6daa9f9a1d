// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/blocks/summation_tree.h"

namespace ddp {

std::int64_t SummationTree::width(int level) const noexcept {
  return ((blocks_ - 1) >> level) + 1;
}

TreeNode SummationTree::root() const noexcept {
  int level = 0;
  while (width(level) > 1) ++level;
  return {level, 0};
}

bool SummationTree::moves_up(TreeNode node) const noexcept {
  const auto nodes = width(node.level);
  return nodes > 1 && node.index % 2 == 0 && node.index == nodes - 1;
}

std::vector<TreeNode> nodes_of(const SummationTree& tree, std::int64_t begin, std::int64_t end) {
  struct Nothing {};
  PartialSums<Nothing> sums(tree);
  for (auto block = begin; block < end; ++block) sums.push({0, block}, {}, [](auto&, auto&&) {});
  std::vector<TreeNode> nodes;
  for (const auto& entry : sums.entries()) nodes.push_back(entry.node);
  return nodes;
}

}  // namespace ddp

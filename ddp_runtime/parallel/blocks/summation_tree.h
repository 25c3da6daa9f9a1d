// SPDX-License-Identifier: Apache-2.0
// The order in which the gradients of a step's blocks are added. It depends on the number of blocks
// only, so that any number of ranks gets the same bits. Pure.
//
// Blocks 2i and 2i + 1 are added, then the sums of two pairs, and so on. A node without a sibling
// moves up as it is. Each rank has blocks in a row, and adds up those nodes whose blocks it all
// has; the others need sums of several ranks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ddp {

// A node of the tree: `index` counts the nodes of its level from the left, level 0 has the blocks.
struct TreeNode {
  int level = 0;
  std::int64_t index = 0;

  bool operator==(const TreeNode&) const = default;
};

class SummationTree {
 public:
  // `blocks` >= 1.
  explicit SummationTree(std::int64_t blocks) : blocks_(blocks) {}

  std::int64_t blocks() const noexcept { return blocks_; }
  TreeNode root() const noexcept;
  // Whether the node has a parent, but no sibling.
  bool moves_up(TreeNode node) const noexcept;

 private:
  std::int64_t width(int level) const noexcept;

  std::int64_t blocks_;
};

inline TreeNode parent_of(TreeNode node) noexcept {
  return {node.level + 1, node.index / 2};
}

// The sums of a part of the tree, which grows from left to right: of blocks, or of nodes that
// others have added up. Two siblings become their parent at once, so that there are few nodes: at
// most two of each level.
template <class Sum>
class PartialSums {
 public:
  struct Entry {
    TreeNode node;
    Sum sum;
  };

  explicit PartialSums(SummationTree tree) : tree_(tree) {}

  // `node` is the one right of the last one. `add(left, right)` adds the right sum to the left one.
  template <class Add>
  void push(TreeNode node, Sum sum, const Add& add) {
    for (;;) {
      if (has_left_sibling(node)) {
        auto left = std::move(entries_.back().sum);
        entries_.pop_back();
        add(left, std::move(sum));
        sum = std::move(left);
      } else if (!tree_.moves_up(node)) {
        break;
      }
      node = parent_of(node);
    }
    entries_.push_back({node, std::move(sum)});
  }

  // From left to right.
  std::vector<Entry>& entries() noexcept { return entries_; }
  bool complete() const noexcept {
    return entries_.size() == 1 && entries_.front().node == tree_.root();
  }

 private:
  bool has_left_sibling(TreeNode node) const noexcept {
    return node.index % 2 == 1 && !entries_.empty() &&
           entries_.back().node == TreeNode{node.level, node.index - 1};
  }

  SummationTree tree_;
  std::vector<Entry> entries_;
};

// The nodes that remain of the blocks from `begin` to `end` (exclusive), from left to right.
std::vector<TreeNode> nodes_of(const SummationTree& tree, std::int64_t begin, std::int64_t end);

}  // namespace ddp

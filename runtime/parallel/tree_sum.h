#pragma once
// A fixed binary tree over the leaves 0 … n-1 of a sum, so that floating-point addition, which depends on its
// order, gives the same bits however the leaves are spread over ranks.
//
//   leaves   0   1   2   3   4        A node of level l covers the 2^l leaves from index * 2^l on, as far as
//            └─┬─┘   └─┬─┘   │        there are any. Its sum is that of its left child plus that of its right
//              └───┬───┘     │        one; a node whose right child covers no leaf is its left child. So the
//                  └────┬────┘        order of all additions follows from n alone.
//
// Who holds a contiguous range of leaves adds them up as far as whole nodes of the tree lie in the range: a
// few partial sums, the nodes of all ranges in order then make the root. Pure; any thread.

#include <cstdint>
#include <vector>

namespace lockstep::parallel {

struct TreeNode {
  int level = 0;
  int64_t index = 0;  // among the nodes of its level
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

// Which partial sums to add when nodes arrive from left to right. The caller keeps their values in a stack
// beside it, so that the same order serves any kind of value. At most one more than the tree's height is open
// at once where all leaves arrive.
class TreeStack {
 public:
  explicit TreeStack(int64_t leaves) : leaves_(leaves) {}

  // The next node to the right of those before, which need not begin at leaf 0. Returns how many additions
  // follow: so many times, the topmost value is added to the one below it and dropped.
  [[nodiscard]] int Push(TreeNode node);
  // The open partial sums, from left to right.
  [[nodiscard]] const std::vector<TreeNode>& nodes() const { return nodes_; }

 private:
  [[nodiscard]] TreeNode Raised(TreeNode node) const;

  int64_t leaves_;
  std::vector<TreeNode> nodes_;
};

// What remains of the leaves [begin, end) of `leaves`: at most two nodes of each level.
[[nodiscard]] std::vector<TreeNode> NodesOfRange(int64_t begin, int64_t end, int64_t leaves);

}  // namespace lockstep::parallel

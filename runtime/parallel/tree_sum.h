#pragma once
// A fixed binary tree over the leaves 0 … n-1 of a sum. Floating-point addition depends on its order; with
// this tree the result has the same bits however the leaves are distributed over ranks.
//
//   leaves   0   1   2   3   4        A node of level l covers the 2^l leaves from index * 2^l on, as far as
//            └─┬─┘   └─┬─┘   │        there are any. Its sum is that of its left child plus that of its right
//              └───┬───┘     │        one; a node whose right child covers no leaf is its left child. So the
//                  └────┬────┘        order of all additions follows from n alone.
//
// A rank that holds a contiguous range of leaves sums them as far as whole nodes of the tree are inside the
// range: a few partial sums. The nodes of all ranges in order then yield the root. Pure; any thread.

#include <cstdint>
#include <vector>

namespace lockstep::parallel {

struct TreeNode {
  int level = 0;
  int64_t index = 0;  // among the nodes of its level
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

// Determines which partial sums to add when nodes arrive from left to right. The caller keeps their values in
// a parallel stack, so that the order works for any kind of value. At most height + 1 sums are open at once
// if all leaves arrive.
class TreeStack {
 public:
  explicit TreeStack(int64_t leaves) : leaves_(leaves) {}

  // Adds the next node to the right of the previous ones; the first need not begin at leaf 0. Returns the
  // number of additions that follow: in each, the topmost value is added to the one below it and dropped.
  [[nodiscard]] int Push(TreeNode node);
  // The open partial sums, from left to right.
  [[nodiscard]] const std::vector<TreeNode>& nodes() const { return nodes_; }

 private:
  [[nodiscard]] TreeNode Raised(TreeNode node) const;

  int64_t leaves_;
  std::vector<TreeNode> nodes_;
};

// The nodes that the leaves [begin, end) of `leaves` reduce to: at most two per level.
[[nodiscard]] std::vector<TreeNode> NodesOfRange(int64_t begin, int64_t end, int64_t leaves);

}  // namespace lockstep::parallel

#include "runtime/parallel/tree_sum.h"

namespace lockstep::parallel {
namespace {

int64_t FirstLeaf(const TreeNode& node) { return node.index << node.level; }

bool AreSiblings(const TreeNode& left, const TreeNode& right) {
  return left.level == right.level && left.index % 2 == 0 && right.index == left.index + 1;
}

TreeNode ParentOf(const TreeNode& node) { return {node.level + 1, node.index / 2}; }

}  // namespace

// A left child without a sibling is equal to its parent.
TreeNode TreeStack::Raised(TreeNode node) const {
  const auto is_root = [&] { return node.index == 0 && FirstLeaf({node.level, 1}) >= leaves_; };
  const auto is_alone = [&] {
    return node.index % 2 == 0 && FirstLeaf({node.level, node.index + 1}) >= leaves_;
  };
  while (!is_root() && is_alone()) node = ParentOf(node);
  return node;
}

int TreeStack::Push(TreeNode node) {
  node = Raised(node);
  int additions = 0;
  while (!nodes_.empty() && AreSiblings(nodes_.back(), node)) {
    nodes_.pop_back();
    node = Raised(ParentOf(node));
    ++additions;
  }
  nodes_.push_back(node);
  return additions;
}

std::vector<TreeNode> NodesOfRange(int64_t begin, int64_t end, int64_t leaves) {
  TreeStack stack(leaves);
  for (int64_t leaf = begin; leaf < end; ++leaf) static_cast<void>(stack.Push({0, leaf}));
  return stack.nodes();
}

}  // namespace lockstep::parallel

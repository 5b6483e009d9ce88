#include "runtime/parallel/tree_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <string>

namespace lockstep::parallel {
namespace {

// A sum written out, with its order of additions as brackets.
struct Terms {
  std::vector<std::string> values;
  TreeStack stack;

  explicit Terms(int64_t leaves) : stack(leaves) {}
  void Push(TreeNode node, std::string value) {
    values.push_back(std::move(value));
    for (int additions = stack.Push(node); additions > 0; --additions) {
      const std::string right = std::move(values.back());
      values.pop_back();
      values.back() = "(" + values.back() + "+" + right + ")";
    }
  }
};

// Each range sums its leaves; then the ranges' partial sums are combined in order.
std::string SumOver(const std::vector<int64_t>& bounds, int64_t leaves) {
  Terms whole(leaves);
  for (std::size_t r = 0; r + 1 < bounds.size(); ++r) {
    Terms part(leaves);
    for (int64_t leaf = bounds[r]; leaf < bounds[r + 1]; ++leaf) part.Push({0, leaf}, std::to_string(leaf));
    EXPECT_EQ(part.stack.nodes(), NodesOfRange(bounds[r], bounds[r + 1], leaves));
    for (std::size_t i = 0; i < part.values.size(); ++i) whole.Push(part.stack.nodes()[i], part.values[i]);
  }
  EXPECT_EQ(whole.values.size(), 1U) << "the root, and nothing else, is left of " << leaves << " leaves";
  return whole.values.empty() ? "" : whole.values.front();
}

TEST(TreeSum, IsATreeOverThePlacesOfTheLeaves) {
  EXPECT_EQ(SumOver({0, 1}, 1), "0");
  EXPECT_EQ(SumOver({0, 2}, 2), "(0+1)");
  EXPECT_EQ(SumOver({0, 3}, 3), "((0+1)+2)");
  EXPECT_EQ(SumOver({0, 5}, 5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(SumOver({0, 7}, 7), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(TreeSum, IsTheSameForEverySplitIntoRanges) {
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 3000; ++trial) {
    const int64_t leaves = std::uniform_int_distribution<int64_t>(1, 70)(random);
    // Some ranges are empty: ranks without a leaf.
    std::vector<int64_t> bounds = {0, leaves};
    for (int cuts = std::uniform_int_distribution<int>(0, 8)(random); cuts > 0; --cuts)
      bounds.push_back(std::uniform_int_distribution<int64_t>(0, leaves)(random));
    std::sort(bounds.begin(), bounds.end());
    ASSERT_EQ(SumOver(bounds, leaves), SumOver({0, leaves}, leaves));
  }
}

TEST(TreeSum, LeavesFewPartialSumsOfARange) {
  for (int64_t leaves = 1; leaves < 40; ++leaves) {
    const auto height = std::bit_width(static_cast<uint64_t>(leaves - 1));
    for (int64_t begin = 0; begin < leaves; ++begin) {
      for (int64_t end = begin; end <= leaves; ++end) {
        ASSERT_LE(NodesOfRange(begin, end, leaves).size(), 2 * static_cast<std::size_t>(height) + 1);
      }
    }
  }
  // A range that is a node is a single partial sum: nothing is sent twice if the world divides the leaves.
  EXPECT_EQ(NodesOfRange(8, 12, 16), (std::vector<TreeNode>{{2, 2}}));
  EXPECT_EQ(NodesOfRange(0, 0, 16), std::vector<TreeNode>{});
}

}  // namespace
}  // namespace lockstep::parallel

#include "runtime/parallel/deterministic_data_parallel.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/forked_ranks.h"

namespace lockstep::parallel {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

constexpr int64_t kLeaves = 11;
constexpr int64_t kSamples = 3;  // of a leaf, except for the last one

// An odd number of parameters, so that no world divides them; values of many magnitudes, so that the order of
// a sum changes its bits.
struct DeterministicNetwork {
  DeterministicNetwork() {
    torch::manual_seed(7);
    layers = torch::nn::Sequential(torch::nn::Linear(37, 53), torch::nn::Tanh(), torch::nn::Linear(53, 9));
  }
  at::Tensor LossSum(int64_t leaf) {
    torch::manual_seed(100 + static_cast<uint64_t>(leaf));
    const int64_t samples = leaf == kLeaves - 1 ? 1 : kSamples;
    const at::Tensor inputs = torch::randn({samples, 37}) * std::pow(10.0, static_cast<double>(leaf % 5) - 2);
    return layers->forward(inputs).square().sum();
  }
  // The bits of all gradients.
  std::string Gradients() {
    std::string bytes;
    for (const at::Tensor& parameter : layers->parameters()) {
      const at::Tensor& gradient = parameter.grad();
      bytes.append(static_cast<const char*>(gradient.const_data_ptr()), gradient.nbytes());
    }
    return std::to_string(std::hash<std::string>{}(bytes));
  }
  torch::nn::Sequential layers{nullptr};
};

Result<void> RunStep(Strategy& strategy, DeterministicNetwork& network, int rank,
                     const std::vector<int64_t>& leaves) {
  LOCKSTEP_TRY(strategy.BeginStep(leaves));
  int64_t leaf = std::accumulate(leaves.begin(), leaves.begin() + rank, int64_t{0});
  const int64_t mine = leaves[static_cast<std::size_t>(rank)];
  if (mine == 0) return strategy.BackwardOfNothing();
  for (int64_t i = 1; i <= mine; ++i) LOCKSTEP_TRY(strategy.Backward(network.LossSum(leaf++), i == mine));
  return {};
}

// Leaves of each rank -> the bits of the gradients, if all ranks agree on them in each of two steps.
std::string GradientsOf(const std::vector<int64_t>& leaves) {
  RoundConnector connector;
  const int world = static_cast<int>(leaves.size());
  auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, world);
    REQUIRE(communicator.ok());
    DeterministicNetwork network;
    auto strategy = MakeDeterministicDataParallel(*communicator, network.layers->parameters());
    REQUIRE(strategy.ok());
    REQUIRE(RunStep(**strategy, network, rank, leaves).ok());
    const std::string first = network.Gradients();
    REQUIRE(RunStep(**strategy, network, rank, leaves).ok());
    REQUIRE(network.Gradients() == first);
    parent.Send(first);
    return 0;
  });
  std::string common;
  for (auto& rank : ranks) {
    const std::string mine = rank.channel().Receive(kPatience).value_or("nothing");
    EXPECT_TRUE(common.empty() || mine == common);
    common = mine;
  }
  ExpectAllSucceed(ranks);
  return common;
}

TEST(DeterministicDataParallel, GivesTheSameBitsHoweverTheLeavesAreSpread) {
  const std::string alone = GradientsOf({11});
  ASSERT_NE(alone, "nothing");
  const std::vector<std::vector<int64_t>> worlds = {
      {6, 5},  // equal shares of two, three, four ranks
      {4, 4, 3},
      {3, 3, 3, 2},  //
      {1, 9, 1},
      {2, 7, 1, 1},  // uneven ones
      {11, 0},
      {4, 4, 0, 3},                                 // a rank without a leaf, also between others
      {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}};  // more ranks than leaves
  for (const auto& leaves : worlds) EXPECT_EQ(GradientsOf(leaves), alone) << leaves.size() << " ranks";
}

// An interrupted step must not affect the one that repeats it.
TEST(DeterministicDataParallel, ForgetsAStepThatBrokeOff) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    DeterministicNetwork network;
    auto strategy = MakeDeterministicDataParallel(*communicator, network.layers->parameters());
    REQUIRE(strategy.ok());
    REQUIRE(RunStep(**strategy, network, 0, {kLeaves}).ok());
    const std::string whole = network.Gradients();
    REQUIRE((*strategy)->BeginStep(std::vector<int64_t>{kLeaves}).ok());
    for (int64_t leaf = 0; leaf < 5; ++leaf)
      REQUIRE((*strategy)->Backward(network.LossSum(leaf), false).ok());
    REQUIRE(RunStep(**strategy, network, 0, {kLeaves}).ok());
    REQUIRE(network.Gradients() == whole);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(DeterministicDataParallel, RefusesParametersOfSeveralTypes) {
  const auto strategy = MakeDeterministicDataParallel(
      nullptr, {torch::zeros({2}, at::TensorOptions(at::kFloat).requires_grad(true)),
                torch::zeros({2}, at::TensorOptions(at::kDouble).requires_grad(true))});
  ASSERT_FALSE(strategy.ok());
  EXPECT_EQ(strategy.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(strategy.error().message.find("parameters of one type"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::parallel

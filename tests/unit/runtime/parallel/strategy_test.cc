#include "runtime/parallel/strategy.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <thread>

#include "runtime/parallel/data_parallel.h"
#include "runtime/parallel/deterministic_data_parallel.h"
#include "runtime/parallel/local_gradients.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::parallel {
namespace {

using testing::ExpectAllSucceed;
using testing::kCollectiveLimit;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

using Make = std::function<Result<std::unique_ptr<Strategy>>(std::shared_ptr<comm::Communicator>,
                                                             std::vector<at::Tensor>)>;

Make DataParallelIn(at::ScalarType type) {
  return [type](auto communicator, auto parameters) {
    return MakeDataParallel(std::move(communicator), std::move(parameters), {type, /*samples=*/16});
  };
}

// The properties of every strategy.
struct Named {
  const char* name;
  Make make;
};
class StrategyTest : public ::testing::TestWithParam<Named> {};
INSTANTIATE_TEST_SUITE_P(All, StrategyTest,
                         ::testing::Values(Named{"DataParallel", DataParallelIn(at::kFloat)},
                                           Named{"DeterministicDataParallel", MakeDeterministicDataParallel}),
                         [](const auto& one) { return std::string(one.param.name); });

// More than one bucket, and parameters of several shapes.
struct Network {
  Network() {
    torch::manual_seed(7);
    layers =
        torch::nn::Sequential(torch::nn::Linear(64, 6000), torch::nn::Tanh(), torch::nn::Linear(6000, 10));
  }
  at::Tensor LossSum(const at::Tensor& inputs, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(
        layers->forward(inputs), labels,
        torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  }
  torch::nn::Sequential layers{nullptr};
};

struct Samples {
  explicit Samples(int64_t step) {
    torch::manual_seed(100 + static_cast<uint64_t>(step));
    inputs = torch::randn({16, 64});
    labels = torch::randint(10, {16}, at::kLong);
  }
  at::Tensor inputs;
  at::Tensor labels;
};

double RelativeError(Network& network, Network& reference) {
  double worst = 0;
  const auto theirs = reference.layers->parameters();
  std::size_t i = 0;
  for (const at::Tensor& parameter : network.layers->parameters()) {
    const at::Tensor& expected = theirs[i++].grad();
    worst =
        std::max(worst, (parameter.grad() - expected).norm().item<double>() / expected.norm().item<double>());
  }
  return worst;
}

// `shares[rank]` lists the sizes of the rank's micro-batches; together they are the 16 samples of the step.
double WorstErrorOfThreeSteps(const Make& make, const std::vector<std::vector<int64_t>>& shares) {
  RoundConnector connector;
  std::vector<int64_t> micro_batches;
  for (const auto& share : shares) micro_batches.push_back(static_cast<int64_t>(share.size()));
  double worst = 0;
  auto ranks = StartRanks(static_cast<int>(shares.size()), [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, static_cast<int>(shares.size()));
    REQUIRE(communicator.ok());
    Network network;
    auto strategy = make(*communicator, network.layers->parameters());
    REQUIRE(strategy.ok());
    double worst_here = 0;
    for (int64_t step = 0; step < 3; ++step) {
      const Samples samples(step);
      REQUIRE((*strategy)->BeginStep(micro_batches).ok());
      int64_t begin = 0;
      for (int r = 0; r < rank; ++r) {
        for (const int64_t size : shares[static_cast<std::size_t>(r)]) begin += size;
      }
      const auto& mine = shares[static_cast<std::size_t>(rank)];
      for (std::size_t m = 0; m < mine.size(); ++m) {
        const at::Tensor loss = network.LossSum(samples.inputs.narrow(0, begin, mine[m]),
                                                samples.labels.narrow(0, begin, mine[m]));
        REQUIRE((*strategy)->Backward(loss, m + 1 == mine.size()).ok());
        begin += mine[m];
      }
      if (mine.empty()) REQUIRE((*strategy)->BackwardOfNothing().ok());

      Network whole;
      whole.LossSum(samples.inputs, samples.labels).backward();
      worst_here = std::max(worst_here, RelativeError(network, whole));
    }
    parent.Send(std::to_string(worst_here * 1e9));
    return 0;
  });
  for (auto& rank : ranks) {
    const auto line = rank.channel().Receive(kPatience);
    worst = std::max(worst, line.has_value() ? std::stod(*line) * 1e-9 : 1.0);
  }
  ExpectAllSucceed(ranks);
  return worst;
}

TEST_P(StrategyTest, GivesTheGradientsOfOneProcessWithTheWholeBatch) {
  const std::vector<std::vector<std::vector<int64_t>>> cases = {
      {{16}},               // one rank
      {{8}, {8}},           // equal shares
      {{11}, {5}},          // uneven shares
      {{6}, {5}, {5}},      // the remainder of three
      {{4, 4, 3}, {2, 3}},  // several micro-batches, not as many on each rank
      {{9}, {7}, {}},       // a rank with nothing to do
  };
  for (const auto& shares : cases) {
    const double worst = WorstErrorOfThreeSteps(GetParam().make, shares);
    std::printf("%zu ranks: relative error of the gradients %.2g\n", shares.size(), worst);
    EXPECT_LE(worst, 1e-6);
  }
}

// Rank 0 takes a branch that the others do not, in one micro-batch of two; one layer is used by no rank.
TEST_P(StrategyTest, SumsWhatOnlySomeUseAndGivesZerosForTheRest) {
  struct Branches {
    Branches() {
      torch::manual_seed(7);
      idle = torch::nn::Linear(64, 6000);
      common = torch::nn::Linear(64, 6000);
      branch = torch::nn::Linear(6000, 64);
    }
    at::Tensor LossSum(const at::Tensor& inputs, bool takes_branch) {
      const at::Tensor x = common->forward(inputs);
      return (takes_branch ? branch->forward(x) : x).square().sum();
    }
    std::vector<at::Tensor> parameters() const {
      std::vector<at::Tensor> all;
      for (const auto& layer : {idle, common, branch})
        for (const at::Tensor& parameter : layer->parameters()) all.push_back(parameter);
      return all;
    }
    torch::nn::Linear idle{nullptr};
    torch::nn::Linear common{nullptr};
    torch::nn::Linear branch{nullptr};
  };
  const Make make = GetParam().make;
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    Branches network;
    auto strategy = make(*communicator, network.parameters());
    REQUIRE(strategy.ok());
    for (int64_t step = 0; step < 3; ++step) {
      const at::Tensor inputs = Samples(step).inputs;
      const auto loss = [&](Branches& of, int64_t piece) {
        return of.LossSum(inputs.narrow(0, 4 * piece, 4), piece == 0);
      };
      REQUIRE((*strategy)->BeginStep(std::vector<int64_t>{2, 1, 1}).ok());
      if (rank == 0) REQUIRE((*strategy)->Backward(loss(network, 0), false).ok());
      REQUIRE((*strategy)->Backward(loss(network, rank + 1), true).ok());
      Branches whole;
      for (int64_t piece = 0; piece < 4; ++piece) loss(whole, piece).backward();
      const auto expected = whole.parameters();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor gradient = network.parameters()[i].grad();
        if (!expected[i].grad().defined()) {
          REQUIRE(gradient.count_nonzero().item<int64_t>() == 0);
        } else {
          REQUIRE((gradient - expected[i].grad()).norm().item<double>() <=
                  1e-6 * expected[i].grad().norm().item<double>());
        }
      }
    }
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// The error is that of the format, however many ranks participate: bf16 keeps 8 bits, fp16 11.
TEST(DataParallel, SumsInHalfOfTheBytes) {
  for (const auto& [type, bound] : {std::pair(at::kBFloat16, 1.0 / 128), std::pair(at::kHalf, 1.0 / 1024)}) {
    for (const auto& shares :
         std::vector<std::vector<std::vector<int64_t>>>{{{16}}, {{11}, {5}}, {{6, 3}, {7}, {}}}) {
      const double worst = WorstErrorOfThreeSteps(DataParallelIn(type), shares);
      std::printf("%s, %zu ranks: relative error of the gradients %.2g\n", at::toString(type), shares.size(),
                  worst);
      EXPECT_LE(worst, bound);
      EXPECT_GT(worst, bound / 1000) << "it was summed in float32";
    }
  }
}

TEST_P(StrategyTest, DistinguishesABrokenRoundFromAFailedPass) {
  const Make make = GetParam().make;
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Network network;
    auto strategy = make(*communicator, network.layers->parameters());
    REQUIRE(strategy.ok());
    const Samples samples(0);
    REQUIRE((*strategy)->BeginStep(std::vector<int64_t>{2, 1}).ok());
    const at::Tensor scalar_needed = network.layers->forward(samples.inputs);
    const Result<void> misuse = (*strategy)->Backward(scalar_needed, /*last=*/false);
    REQUIRE(!misuse.ok());
    REQUIRE(misuse.error().code == ErrorCode::kInternal);

    if (rank == 1) ::raise(SIGKILL);
    const Result<void> broken = (*strategy)->Backward(network.LossSum(samples.inputs, samples.labels), true);
    REQUIRE(!broken.ok());
    REQUIRE(broken.error().code == ErrorCode::kAborted);
    (*communicator)->Abort();
    return 0;
  });
  EXPECT_EQ(ranks[1].Wait(kPatience), 128 + SIGKILL);
  EXPECT_EQ(ranks[0].Wait(kPatience), 0);
}

// The gradients of a broken round must not leak into the next: same process, new strategy, fewer ranks.
TEST_P(StrategyTest, IsRebuiltForTheNextRound) {
  const Make make = GetParam().make;
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    Network network;
    const Samples samples(0);
    {
      auto communicator = first.Enter(1, rank, 3);
      REQUIRE(communicator.ok());
      auto strategy = make(*communicator, network.layers->parameters());
      REQUIRE(strategy.ok());
      REQUIRE((*strategy)->BeginStep(std::vector<int64_t>{1, 1, 1}).ok());
      const at::Tensor loss = network.LossSum(samples.inputs, samples.labels);
      if (rank == 2) ::raise(SIGKILL);
      REQUIRE(!(*strategy)->Backward(loss, true).ok());
      (*communicator)->Abort();
    }
    auto communicator = second.Enter(2, rank, 2);
    REQUIRE(communicator.ok());
    auto strategy = make(*communicator, network.layers->parameters());
    REQUIRE(strategy.ok());
    REQUIRE((*strategy)->BeginStep(std::vector<int64_t>{1, 1}).ok());
    REQUIRE((*strategy)
                ->Backward(network.LossSum(samples.inputs.narrow(0, 8 * rank, 8),
                                           samples.labels.narrow(0, 8 * rank, 8)),
                           true)
                .ok());
    Network whole;
    whole.LossSum(samples.inputs, samples.labels).backward();
    REQUIRE(RelativeError(network, whole) <= 1e-6);
    return 0;
  });
  EXPECT_EQ(ranks[0].Wait(kPatience), 0);
  EXPECT_EQ(ranks[1].Wait(kPatience), 0);
}

// A hung peer: nothing fails by itself, so the supervisor's abort must end the wait.
TEST_P(StrategyTest, WaitsForAHungPeerUntilTheRoundIsAborted) {
  const Make make = GetParam().make;
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Network network;
    auto strategy = make(*communicator, network.layers->parameters());
    REQUIRE(strategy.ok());
    const Samples samples(0);
    REQUIRE((*strategy)->BeginStep(std::vector<int64_t>{1, 1}).ok());
    const at::Tensor loss = network.LossSum(samples.inputs, samples.labels);
    parent.Send("ready");
    if (rank == 1) ::raise(SIGSTOP);
    std::jthread control([&] {
      REQUIRE(parent.Receive(kPatience) == "abort");
      (*communicator)->Abort();
      return 0;
    });
    const Result<void> ended = (*strategy)->Backward(loss, true);
    REQUIRE(!ended.ok());
    REQUIRE(ended.error().code == ErrorCode::kAborted);
    return 0;
  });
  for (auto& rank : ranks) ASSERT_EQ(rank.channel().Receive(kPatience), "ready");
  EXPECT_EQ(ranks[0].Wait(std::chrono::milliseconds(300)), std::nullopt);
  const auto start = std::chrono::steady_clock::now();
  ranks[0].channel().Send("abort");
  EXPECT_EQ(ranks[0].Wait(kPatience), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kCollectiveLimit) << "the time-out ended it";
}

// The optimizer reads all of them.
TEST(LocalGradients, AreOfThisStepAloneAndZeroWhereNoPassCame) {
  const at::Tensor used = torch::ones({2}).requires_grad_(true);
  const at::Tensor unused = torch::ones({3}).requires_grad_(true);
  const auto strategy = std::move(MakeLocalGradients({used, unused})).value();
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(strategy->BeginStep({}).ok());
    ASSERT_TRUE(strategy->Backward((used * 2).sum(), /*last=*/false).ok());
    ASSERT_TRUE(strategy->Backward((used * 3).sum(), /*last=*/true).ok());
    EXPECT_TRUE(used.grad().equal(torch::full({2}, 5.0F)));
    EXPECT_TRUE(unused.grad().equal(torch::zeros({3})));
  }
  ASSERT_TRUE(strategy->BeginStep({}).ok());
  ASSERT_TRUE(strategy->BackwardOfNothing().ok());
  EXPECT_TRUE(used.grad().equal(torch::zeros({2})));
}

TEST_P(StrategyTest, RefusesAModelWithoutParameters) {
  const auto strategy = GetParam().make(nullptr, {});
  ASSERT_FALSE(strategy.ok());
  EXPECT_EQ(strategy.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::parallel

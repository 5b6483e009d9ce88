// Replicas on several "devices" of this machine, all of which are its CPU.

#include "runtime/train/replicated/replicas.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "runtime/parallel/replica_gradients.h"

namespace lockstep::train {
namespace {

const std::vector<at::Device> kCpu = {at::kCPU};

// A norm, whose running statistics change in each forward pass, and a layer.
class Normed final : public Model {
 public:
  at::Tensor Forward(const at::Tensor& inputs) override { return layer_(norm_(inputs)); }

 private:
  torch::nn::BatchNorm1d norm_{register_module("norm", torch::nn::BatchNorm1d(4))};
  torch::nn::Linear layer_{register_module("layer", torch::nn::Linear(4, 2))};
};

std::unique_ptr<parallel::Strategy> StrategyOf(const std::vector<Replica>& replicas) {
  std::vector<std::vector<at::Tensor>> parameters;
  for (const Replica& replica : replicas) parameters.push_back(replica.parameters);
  return std::move(parallel::MakeReplicaGradients(std::move(parameters))).value();
}

std::vector<Replica> NormedReplicas(int count) {
  std::vector<Replica> replicas;
  for (int i = 0; i < count; ++i) replicas.push_back(ReplicaOf(std::make_shared<Normed>(), kCpu));
  return replicas;
}

at::Tensor LossOf(const Part& part) {
  Model& model = *part.replica->model;
  return model.LossSum(model.Forward(part.batch.inputs), part.batch.targets);
}

data::Batch SomeBatch(int64_t samples) {
  return {at::arange(samples * 4, at::kFloat).reshape({samples, 4}), at::zeros({samples}, at::kLong)};
}

// Two layers, and one in between that is not trained.
class Layered final : public Model {
 public:
  Layered() {
    frozen_->weight.set_requires_grad(false);
    frozen_->bias.set_requires_grad(false);
  }
  at::Tensor Forward(const at::Tensor& inputs) override { return second_(frozen_(first_(inputs).tanh())); }

 private:
  torch::nn::Linear first_{register_module("first", torch::nn::Linear(4, 4))};
  torch::nn::Linear frozen_{register_module("frozen", torch::nn::Linear(4, 4))};
  torch::nn::Linear second_{register_module("second", torch::nn::Linear(4, 3))};
};

// The largest relative error of two steps on so many devices, with micro-batches of these sizes.
double ErrorOfGradients(int devices, const std::vector<int64_t>& micro_batches) {
  std::vector<Replica> replicas;
  for (int i = 0; i < devices; ++i) replicas.push_back(ReplicaOf(std::make_shared<Layered>(), kCpu));
  Layered whole;
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < whole.parameters().size(); ++i)
      whole.parameters()[i].copy_(replicas[0].parameters[i]);
  }
  const auto strategy = StrategyOf(replicas);
  double worst = 0;
  for (int step = 0; step < 2; ++step) {
    whole.zero_grad();
    const std::vector<int64_t> counts = {static_cast<int64_t>(micro_batches.size())};
    EXPECT_TRUE(strategy->BeginStep(counts).ok());
    for (std::size_t m = 0; m < micro_batches.size(); ++m) {
      const int64_t size = micro_batches[m];
      const data::Batch batch = {at::randn({size, 4}), at::randint(3, {size}, at::kLong)};
      const std::vector<Part> parts = Scatter(replicas, {0, size}, batch);
      EXPECT_EQ(parts.size(), static_cast<std::size_t>(std::min<int64_t>(size, devices)));
      EXPECT_TRUE(strategy->Backward(SumOfLosses(parts, LossOf), m + 1 == micro_batches.size()).ok());
      whole.LossSum(whole.Forward(batch.inputs), batch.targets).backward();
    }
    for (std::size_t i = 0; i < whole.parameters().size(); ++i) {
      const at::Tensor expected = whole.parameters()[i].grad();
      if (!expected.defined()) continue;
      const double error = (replicas[0].parameters[i].grad() - expected).norm().item<double>();
      worst = std::max(worst, error / expected.norm().item<double>());
    }
    for (std::size_t d = 1; d < replicas.size(); ++d) {
      for (const at::Tensor& parameter : replicas[d].parameters) EXPECT_FALSE(parameter.grad().defined());
    }
    // Changes the parameters as an optimizer does; the replicas follow in the next step.
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < whole.parameters().size(); ++i) {
      if (!whole.parameters()[i].requires_grad()) continue;
      whole.parameters()[i].add_(whole.parameters()[i].grad(), -0.01);
      replicas[0].parameters[i].add_(replicas[0].parameters[i].grad(), -0.01);
    }
  }
  return worst;
}

TEST(Replicas, GiveTheGradientsOfOneModelWithTheWholeBatch) {
  torch::manual_seed(5);
  const std::vector<std::pair<int, std::vector<int64_t>>> cases = {
      {1, {16}},        // one device
      {2, {16}},        // equal parts
      {3, {16}},        // the remainder of three
      {3, {8, 7, 11}},  // several micro-batches
      {5, {13, 2}},     // fewer samples than devices
  };
  for (const auto& [devices, micro_batches] : cases) {
    const double worst = ErrorOfGradients(devices, micro_batches);
    std::printf("%d devices, %zu micro-batches: relative error of the gradients %.2g\n", devices,
                micro_batches.size(), worst);
    EXPECT_LE(worst, 1e-6);
  }
}

TEST(Replicas, FollowTheRunningStatisticsOfTheFirst) {
  const std::vector<Replica> replicas = NormedReplicas(3);
  const std::vector<Replica> alone = NormedReplicas(1);
  const data::Batch batch = SomeBatch(9);
  for (int pass = 0; pass < 2; ++pass) {
    CopyBuffers(replicas);
    for (std::size_t i = 0; i < replicas[0].buffers.size(); ++i)
      EXPECT_TRUE(replicas[2].buffers[i].equal(replicas[0].buffers[i])) << "buffer " << i;
    (void)SumOfLosses(Scatter(replicas, {0, 9}, batch), LossOf);
    const data::Batch first = {batch.inputs.narrow(0, 0, 3), batch.targets.narrow(0, 0, 3)};
    (void)SumOfLosses(Scatter(alone, {0, 3}, first), LossOf);
  }
  for (std::size_t i = 0; i < alone[0].buffers.size(); ++i)
    EXPECT_TRUE(replicas[0].buffers[i].equal(alone[0].buffers[i])) << "buffer " << i;
}

TEST(Replicas, ShareABatchInOrder) {
  const std::vector<Replica> replicas = NormedReplicas(3);
  const auto slices = [&](Slice piece) {
    std::vector<Slice> found;
    for (const Part& part : Scatter(replicas, piece, SomeBatch(piece.size()))) {
      EXPECT_EQ(part.batch.inputs.size(0), part.positions.size());
      EXPECT_EQ(part.batch.inputs[0][0].item<int64_t>(), (part.positions.begin - piece.begin) * 4);
      found.push_back(part.positions);
    }
    return found;
  };
  EXPECT_EQ(slices({4, 12}), (std::vector<Slice>{{4, 7}, {7, 10}, {10, 12}}));
  EXPECT_EQ(slices({4, 6}), (std::vector<Slice>{{4, 5}, {5, 6}}));
}

TEST(Replicas, GiveBackWhatOneThrew) {
  const std::vector<Replica> replicas = NormedReplicas(3);
  const std::vector<Part> parts = Scatter(replicas, {0, 9}, SomeBatch(9));
  const auto throws = [&](const Part& part) -> at::Tensor {
    if (&part == &parts[2]) throw std::runtime_error("of the last");
    return LossOf(part);
  };
  EXPECT_THROW((void)SumOfLosses(parts, throws), std::runtime_error);
}

TEST(ReplicaGradients, AreZeroWithoutASample) {
  const std::vector<Replica> replicas = NormedReplicas(2);
  const auto strategy = StrategyOf(replicas);
  const std::vector<int64_t> none = {0};
  ASSERT_TRUE(strategy->BeginStep(none).ok());
  ASSERT_TRUE(strategy->BackwardOfNothing().ok());
  for (const at::Tensor& parameter : replicas[0].trained)
    EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
}

TEST(ReplicaGradients, BeginWithTheParametersOfTheFirst) {
  const std::vector<Replica> replicas = NormedReplicas(2);
  const auto strategy = StrategyOf(replicas);
  {
    const at::NoGradGuard no_grad;
    replicas[0].parameters.front().fill_(7);
  }
  const std::vector<int64_t> one = {1};
  ASSERT_TRUE(strategy->BeginStep(one).ok());
  for (std::size_t i = 0; i < replicas[0].parameters.size(); ++i)
    EXPECT_TRUE(replicas[1].parameters[i].equal(replicas[0].parameters[i])) << "parameter " << i;
}

}  // namespace
}  // namespace lockstep::train

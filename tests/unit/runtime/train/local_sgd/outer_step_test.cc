#include "runtime/train/local_sgd/outer_step.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

namespace lockstep::train {
namespace {

TEST(OuterStep, IsNesterovsWithTheChangeForAGradient) {
  const at::Tensor before = torch::tensor({1.0F, 2.0F});
  const at::Tensor after = torch::tensor({0.0F, 4.0F});  // so the gradient is 1, -2
  const std::vector<NamedTensor> momentum = {{"outer.momentum.w", torch::tensor({10.0F, 0.0F})}};
  OuterStep({.learning_rate = 0.5, .momentum = 0.8}, std::vector{before}, std::vector{after}, momentum);
  // m = 0.8 * 10 + 1 = 9;  0.8 * 0 - 2 = -2
  EXPECT_TRUE(at::allclose(momentum[0].tensor, torch::tensor({9.0F, -2.0F})));
  // 1 - 0.5 (1 + 0.8 * 9) = -3.1;  2 - 0.5 (-2 - 0.8 * 2) = 3.8
  EXPECT_TRUE(at::allclose(after, torch::tensor({-3.1F, 3.8F}))) << after;
}

TEST(OuterStep, AgreesWithLibTorchOverManyWindows) {
  torch::manual_seed(5);
  std::vector<NamedTensor> named = {{"a", torch::randn({30, 20})}, {"b", torch::randn({30})}};
  std::vector<at::Tensor> ours = {named[0].tensor, named[1].tensor};
  std::vector<at::Tensor> theirs = {ours[0].clone(), ours[1].clone()};
  const std::vector<NamedTensor> momentum = MakeOuterMomentum(named);
  EXPECT_EQ(momentum[1].name, "outer.momentum.b");
  torch::optim::SGD reference(theirs, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true));
  for (int window = 0; window < 20; ++window) {
    const std::vector<at::Tensor> before = {ours[0].clone(), ours[1].clone()};
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const at::Tensor change = torch::randn_like(ours[i]) * 0.01;
      ours[i].add_(change);
      theirs[i].mutable_grad() = -change;
    }
    OuterStep({}, before, ours, momentum);
    reference.step();
  }
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 1e-6));
}

TEST(OuterStep, IsTheAverageItselfWithRateOneAndNoMomentum) {
  const at::Tensor before = torch::tensor({1.0F, 2.0F});
  const at::Tensor after = torch::tensor({0.25F, 4.0F});
  const std::vector<NamedTensor> momentum = MakeOuterMomentum({{"w", before}});
  OuterStep({.learning_rate = 1, .momentum = 0}, std::vector{before}, std::vector{after}, momentum);
  EXPECT_TRUE(at::allclose(after, torch::tensor({0.25F, 4.0F})));
}

}  // namespace
}  // namespace lockstep::train

#include "runtime/train/step/optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>

namespace lockstep::train {
namespace {

using api::OptimizerName;
using api::OptimizerSpec;

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

// The same parameters and gradients for both sides.
std::vector<NamedTensor> ParametersOf(const Shapes& shapes) {
  torch::manual_seed(3);
  std::vector<NamedTensor> parameters;
  for (const auto& [name, shape] : shapes)
    parameters.push_back({name, torch::randn(shape).requires_grad_(true)});
  return parameters;
}

std::vector<NamedTensor> Parameters() { return ParametersOf({{"fc1.weight", {30, 20}}, {"fc1.bias", {30}}}); }

void SetGradients(std::vector<NamedTensor>& parameters, int step) {
  torch::manual_seed(1000 + static_cast<uint64_t>(step));
  for (NamedTensor& parameter : parameters)
    parameter.tensor.mutable_grad() = torch::randn_like(parameter.tensor);
}

// The largest relative difference of the parameters after 20 steps with a changing rate.
double DifferenceToReference(
    const OptimizerSpec& spec,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>& make_reference) {
  std::vector<NamedTensor> ours = Parameters();
  std::vector<NamedTensor> theirs = Parameters();
  const auto optimizer = MakeOptimizer(spec, ours);
  const auto reference = make_reference({theirs[0].tensor, theirs[1].tensor});
  for (int step = 0; step < 20; ++step) {
    const double rate = 0.01 / (1 + step);
    SetGradients(ours, step);
    SetGradients(theirs, step);
    for (auto& group : reference->param_groups()) group.options().set_lr(rate);
    optimizer->Step(step, rate);
    reference->step();
  }
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const at::Tensor expected = theirs[i].tensor.detach();
    worst = std::max(
        worst, (ours[i].tensor.detach() - expected).norm().item<double>() / expected.norm().item<double>());
  }
  return worst;
}

TEST(Optimizer, AgreesWithLibTorch) {
  const OptimizerSpec plain{.name = OptimizerName::kSgd};
  EXPECT_LE(DifferenceToReference(plain,
                                  [](auto parameters) {
                                    return std::make_unique<torch::optim::SGD>(parameters,
                                                                               torch::optim::SGDOptions(1));
                                  }),
            1e-6);
  const OptimizerSpec nesterov{
      .name = OptimizerName::kSgd, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
  EXPECT_LE(DifferenceToReference(
                nesterov,
                [](auto parameters) {
                  return std::make_unique<torch::optim::SGD>(
                      parameters,
                      torch::optim::SGDOptions(1).momentum(0.9).nesterov(true).weight_decay(0.01));
                }),
            1e-6);
  const OptimizerSpec adam{.name = OptimizerName::kAdam, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.99};
  EXPECT_LE(DifferenceToReference(adam,
                                  [](auto parameters) {
                                    return std::make_unique<torch::optim::Adam>(
                                        parameters,
                                        torch::optim::AdamOptions(1).betas({0.8, 0.99}).weight_decay(0.1));
                                  }),
            1e-6);
  const OptimizerSpec adamw{.name = OptimizerName::kAdamw, .weight_decay = 0.1, .epsilon = 1e-6};
  EXPECT_LE(DifferenceToReference(adamw,
                                  [](auto parameters) {
                                    return std::make_unique<torch::optim::AdamW>(
                                        parameters,
                                        torch::optim::AdamWOptions(1).eps(1e-6).weight_decay(0.1));
                                  }),
            1e-6);
}

// PyTorch's optimizers over a parameter group for the weight, and another one for the bias.
template <typename Reference, typename Options>
double DifferenceToGroups(const OptimizerSpec& spec, const Options& of_weight, const Options& of_bias) {
  std::vector<NamedTensor> ours = Parameters();
  std::vector<NamedTensor> theirs = Parameters();
  const auto optimizer = MakeOptimizer(spec, ours);
  Reference reference(
      std::vector<torch::optim::OptimizerParamGroup>{
          {{theirs[0].tensor}, std::make_unique<Options>(of_weight)},
          {{theirs[1].tensor}, std::make_unique<Options>(of_bias)}},
      of_weight);
  const std::vector<double> scales = {of_weight.get_lr(), of_bias.get_lr()};
  for (int step = 0; step < 20; ++step) {
    const double rate = 0.01 / (1 + step);
    SetGradients(ours, step);
    SetGradients(theirs, step);
    for (std::size_t i = 0; i < 2; ++i) reference.param_groups()[i].options().set_lr(rate * scales[i]);
    optimizer->Step(step, rate);
    reference.step();
  }
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const at::Tensor expected = theirs[i].tensor.detach();
    worst = std::max(
        worst, (ours[i].tensor.detach() - expected).norm().item<double>() / expected.norm().item<double>());
  }
  return worst;
}

TEST(Optimizer, AgreesWithTheParameterGroupsOfLibTorch) {
  const OptimizerSpec adamw{.name = OptimizerName::kAdamw,
                            .weight_decay = 0.5,
                            .weight_decay_on = api::WeightDecayOn::kMatrices,
                            .groups = {{.match = {"fc1.w*"}, .learning_rate_scale = 3}}};
  using torch::optim::AdamWOptions;
  EXPECT_LE(DifferenceToGroups<torch::optim::AdamW>(adamw, AdamWOptions(3).weight_decay(0.5),
                                                    AdamWOptions(1).weight_decay(0)),
            1e-6);
  const OptimizerSpec sgd{.name = OptimizerName::kSgd,
                          .momentum = 0.9,
                          .weight_decay = 0.5,
                          .groups = {{.match = {"*.bias"}, .weight_decay = 0.1, .learning_rate_scale = 0.2}}};
  using torch::optim::SGDOptions;
  EXPECT_LE(DifferenceToGroups<torch::optim::SGD>(sgd, SGDOptions(1).momentum(0.9).weight_decay(0.5),
                                                  SGDOptions(0.2).momentum(0.9).weight_decay(0.1)),
            1e-6);
}

TEST(Optimizer, HasItsWholeStateFromTheStart) {
  const std::vector<NamedTensor> parameters = Parameters();
  const auto adamw = MakeOptimizer({.name = OptimizerName::kAdamw}, parameters);
  ASSERT_EQ(adamw->state().size(), 4U);
  EXPECT_EQ(adamw->state()[0].name, "optimizer.exp_avg.fc1.weight");
  EXPECT_EQ(adamw->state()[3].name, "optimizer.exp_avg_sq.fc1.bias");
  EXPECT_EQ(adamw->state()[0].tensor.sizes(), parameters[0].tensor.sizes());
  EXPECT_FALSE(adamw->state()[0].tensor.requires_grad());
  EXPECT_TRUE(MakeOptimizer({.name = OptimizerName::kSgd}, parameters)->state().empty());
  const auto muon = MakeOptimizer({.name = OptimizerName::kMuon, .momentum = 0.9}, parameters);
  ASSERT_EQ(muon->state().size(), 4U);
  EXPECT_EQ(muon->state()[1].name, "optimizer.momentum.fc1.bias") << "AdamW must not take it for its moment";
  EXPECT_EQ(muon->state()[2].name, "optimizer.exp_avg_sq.fc1.weight");
}

// Steps both with the same gradients and a changing rate. `step_reference` is called for each parameter, with
// its gradient and the learning rate.
using StepReference = std::function<void(std::size_t parameter, at::Tensor& weight,
                                         const at::Tensor& gradient, int step, double learning_rate)>;

// The differences of the changes that 20 steps made, each relative to its size.
std::vector<double> DifferencesOfChanges(const OptimizerSpec& spec, const Shapes& shapes,
                                         const StepReference& step_reference) {
  std::vector<NamedTensor> ours = ParametersOf(shapes);
  std::vector<at::Tensor> before;
  std::vector<at::Tensor> theirs;
  for (const NamedTensor& parameter : ours) {
    before.push_back(parameter.tensor.detach().to(at::kDouble));
    theirs.push_back(before.back().clone());
  }
  const auto optimizer = MakeOptimizer(spec, ours);
  for (int step = 0; step < 20; ++step) {
    const double rate = 0.01 / (1 + step);
    SetGradients(ours, step);
    for (std::size_t i = 0; i < ours.size(); ++i)
      step_reference(i, theirs[i], ours[i].tensor.grad().to(at::kDouble), step, rate);
    optimizer->Step(step, rate);
  }
  std::vector<double> differences;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const at::Tensor difference = ours[i].tensor.detach().to(at::kDouble) - theirs[i];
    differences.push_back(difference.norm().item<double>() / (theirs[i] - before[i]).norm().item<double>());
  }
  return differences;
}

// The moments of Adam without their bias, divided, by the formulas of the paper in double precision.
class AdamDirection {
 public:
  explicit AdamDirection(const OptimizerSpec& spec) : spec_(spec) {}
  at::Tensor After(const at::Tensor& gradient, int step) {
    mean_ = spec_.beta1 * mean_ + (1 - spec_.beta1) * gradient;
    square_ = spec_.beta2 * square_ + (1 - spec_.beta2) * gradient * gradient;
    const at::Tensor mean = mean_ / (1 - std::pow(spec_.beta1, step + 1));
    const at::Tensor square = square_ / (1 - std::pow(spec_.beta2, step + 1));
    return mean / (square.sqrt() + spec_.epsilon);
  }

 private:
  const OptimizerSpec spec_;
  at::Tensor mean_ = at::zeros({1}, at::kDouble);
  at::Tensor square_ = at::zeros({1}, at::kDouble);
};

// Algorithm 2 of You et al. 2020, where the function of the norm is the norm itself.
TEST(Lamb, IsThatOfThePaper) {
  const OptimizerSpec spec{.name = OptimizerName::kLamb,
                           .weight_decay = 0.1,
                           .weight_decay_on = api::WeightDecayOn::kMatrices,
                           .beta1 = 0.8,
                           .beta2 = 0.99,
                           .epsilon = 1e-6,
                           .groups = {{.match = {"fc2.*"}, .weight_decay = 0.5, .learning_rate_scale = 2}}};
  std::vector<AdamDirection> directions(4, AdamDirection(spec));
  const auto step_lamb = [&](std::size_t i, at::Tensor& weight, const at::Tensor& gradient, int step,
                             double rate) {
    const double decay = std::vector{0.1, 0.0, 0.5, 0.1}[i];
    const at::Tensor direction = directions[i].After(gradient, step) + decay * weight;
    weight = weight - (i == 2 ? 2 : 1) * rate * weight.norm() / direction.norm() * direction;
  };
  const Shapes shapes = {
      {"fc1.weight", {30, 20}}, {"fc1.bias", {30}}, {"fc2.weight", {10, 30}}, {"conv.weight", {4, 3, 3, 3}}};
  for (const double difference : DifferencesOfChanges(spec, shapes, step_lamb)) EXPECT_LE(difference, 1e-5);
}

TEST(Lamb, MovesByTheLearningRateWhereANormIsZero) {
  const OptimizerSpec spec{.name = OptimizerName::kLamb};
  std::vector<NamedTensor> parameters = {{"at zero", at::zeros({4}).requires_grad_(true)},
                                         {"without gradient", at::ones({4}).requires_grad_(true)}};
  parameters[0].tensor.mutable_grad() = at::full({4}, 3.0);
  parameters[1].tensor.mutable_grad() = at::zeros({4});
  MakeOptimizer(spec, parameters)->Step(0, 0.25);
  EXPECT_TRUE(parameters[0].tensor.detach().allclose(at::full({4}, -0.25)));
  EXPECT_TRUE(parameters[1].tensor.detach().equal(at::ones({4})));
}

// What five Newton-Schulz iterations do to the singular values of a matrix, which they change and nothing else.
at::Tensor Orthogonalised(const at::Tensor& matrix) {
  const auto [left, values, right] = at::linalg_svd(matrix, /*full_matrices=*/false);
  at::Tensor s = values / matrix.norm();
  for (int i = 0; i < 5; ++i) s = 3.4445 * s - 4.7750 * s.pow(3) + 2.0315 * s.pow(5);
  return at::matmul(left * s, right);
}

TEST(Muon, OrthogonalisesTheMomentumOfMatricesAndIsAdamWElsewhere) {
  const Shapes shapes = {{"tall.weight", {30, 20}},
                         {"wide.weight", {10, 30}},
                         {"bias", {30}},
                         {"conv.weight", {4, 3, 3, 3}},
                         {"embedding.weight", {8, 6}}};
  for (const bool nesterov : {false, true}) {
    SCOPED_TRACE(nesterov);
    const OptimizerSpec spec{
        .name = OptimizerName::kMuon,
        .momentum = 0.9,
        .nesterov = nesterov,
        .weight_decay = 0.1,
        .beta2 = 0.99,
        .groups = {{.match = {"embedding.*"}, .use_muon = false},
                   {.match = {"wide.*"}, .weight_decay = 0.5, .learning_rate_scale = 2}}};
    std::vector<AdamDirection> directions(shapes.size(), AdamDirection(spec));
    std::vector<at::Tensor> momenta(2, at::zeros({1}, at::kDouble));
    const auto step_muon = [&](std::size_t i, at::Tensor& weight, const at::Tensor& gradient, int step,
                               double rate) {
      const double own_rate = i == 1 ? 2 * rate : rate;
      weight = weight * (1 - own_rate * (i == 1 ? 0.5 : 0.1));
      if (i >= momenta.size()) {
        weight = weight - rate * directions[i].After(gradient, step);
        return;
      }
      momenta[i] = 0.9 * momenta[i] + 0.1 * gradient;
      const at::Tensor update = nesterov ? 0.1 * gradient + 0.9 * momenta[i] : momenta[i];
      const double longest = 30;  // in both matrices
      weight = weight - own_rate * 0.2 * std::sqrt(longest) * Orthogonalised(update);
    };
    const std::vector<double> differences = DifferencesOfChanges(spec, shapes, step_muon);
    for (const std::size_t matrix : {0, 1})
      EXPECT_LE(differences[matrix], 0.02) << "as precise as bfloat16 " << matrix;
    for (const std::size_t other : {2, 3, 4}) EXPECT_LE(differences[other], 1e-4) << other;
  }
}

TEST(Muon, KeepsTheSecondMomentOfMatricesZeroAndTheirWeightsWhereTheGradientIsZero) {
  std::vector<NamedTensor> parameters = Parameters();
  const at::Tensor before = parameters[0].tensor.detach().clone();
  for (NamedTensor& parameter : parameters)
    parameter.tensor.mutable_grad() = at::zeros_like(parameter.tensor);
  const auto muon = MakeOptimizer({.name = OptimizerName::kMuon, .momentum = 0.95}, parameters);
  muon->Step(0, 0.1);
  EXPECT_TRUE(parameters[0].tensor.detach().equal(before));
  SetGradients(parameters, 1);
  muon->Step(1, 0.1);
  EXPECT_GT(muon->state()[0].tensor.norm().item<double>(), 0);
  EXPECT_EQ(muon->state()[2].tensor.norm().item<double>(), 0);
  EXPECT_GT(muon->state()[3].tensor.norm().item<double>(), 0);
}

// What get_ema_multi_avg_fn of PyTorch's torch.optim.swa_utils computes.
void Lerp(std::vector<at::Tensor>& averages, const std::vector<NamedTensor>& parameters, double decay) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < averages.size(); ++i) averages[i].lerp_(parameters[i].tensor, 1 - decay);
}

std::vector<at::Tensor> CopiesOf(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> copies;
  for (const NamedTensor& parameter : parameters) copies.push_back(parameter.tensor.detach().clone());
  return copies;
}

// The largest relative difference of an average.
double DifferenceOf(const std::vector<WeightAndAverage>& found, const std::vector<at::Tensor>& expected) {
  double worst = found.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < found.size() && i < expected.size(); ++i) {
    worst = std::max(
        worst, (found[i].average - expected[i]).norm().item<double>() / expected[i].norm().item<double>());
  }
  return worst;
}

constexpr double kDecay = 0.95;

TEST(WeightAverage, IsAMovingAverageThatBeginsAsTheInitialWeights) {
  for (OptimizerSpec spec : {OptimizerSpec{.name = OptimizerName::kSgd, .momentum = 0.9},
                             OptimizerSpec{.name = OptimizerName::kAdamw, .weight_decay = 0.1},
                             OptimizerSpec{.name = OptimizerName::kLamb, .weight_decay = 0.1},
                             OptimizerSpec{.name = OptimizerName::kMuon, .momentum = 0.95}}) {
    SCOPED_TRACE(api::NameOf(spec.name));
    std::vector<NamedTensor> without = Parameters();
    std::vector<NamedTensor> with = Parameters();
    const auto plain = MakeOptimizer(spec, without);
    spec.weight_average = api::WeightAverageSpec{.decay = kDecay};
    const auto averaging = MakeOptimizer(spec, with);
    std::vector<at::Tensor> expected = CopiesOf(with);
    EXPECT_EQ(DifferenceOf(averaging->Averages(), expected), 0);
    for (int step = 0; step < 50; ++step) {
      if (step % 10 == 3) continue;  // it was not finite, so no optimizer steps
      SetGradients(without, step);
      SetGradients(with, step);
      plain->Step(step, 0.01);
      averaging->Step(step, 0.01);
      Lerp(expected, with, kDecay);
    }
    EXPECT_LE(DifferenceOf(averaging->Averages(), expected), 1e-6);
    EXPECT_GE(DifferenceOf(averaging->Averages(), CopiesOf(with)), 1e-3);
    for (std::size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(with[i].tensor.equal(without[i].tensor));
    EXPECT_TRUE(plain->Averages().empty());
    EXPECT_EQ(averaging->state()[1].name, "optimizer.average_minus_weight.fc1.bias");
  }
}

// Its slot is zero then; the other slots keep their values.
TEST(WeightAverage, BeginsAsTheWeightsWhenItIsTurnedOnLater) {
  OptimizerSpec spec{.name = OptimizerName::kSgd, .momentum = 0.9};
  std::vector<NamedTensor> parameters = Parameters();
  const auto first = MakeOptimizer(spec, parameters);
  for (int step = 0; step < 5; ++step) {
    SetGradients(parameters, step);
    first->Step(step, 0.01);
  }
  spec.weight_average = api::WeightAverageSpec{.decay = kDecay};
  const auto second = MakeOptimizer(spec, parameters);
  for (std::size_t i = 0; i < 2; ++i) second->state()[2 + i].tensor.copy_(first->state()[i].tensor);
  std::vector<at::Tensor> expected = CopiesOf(parameters);
  for (int step = 5; step < 25; ++step) {
    SetGradients(parameters, step);
    second->Step(step, 0.01);
    Lerp(expected, parameters, kDecay);
  }
  EXPECT_LE(DifferenceOf(second->Averages(), expected), 1e-6);
}

// Steps depend on state and step number only: joining ranks and checkpoints rely on that.
TEST(Optimizer, GoesOnFromACopyOfItsState) {
  for (const OptimizerSpec& spec : {OptimizerSpec{.name = OptimizerName::kAdamw, .weight_decay = 0.1},
                                    OptimizerSpec{.name = OptimizerName::kLamb, .weight_decay = 0.1},
                                    OptimizerSpec{.name = OptimizerName::kMuon, .momentum = 0.95}}) {
    SCOPED_TRACE(api::NameOf(spec.name));
    std::vector<NamedTensor> first = Parameters();
    std::vector<NamedTensor> second = Parameters();
    const auto original = MakeOptimizer(spec, first);
    const auto joiner = MakeOptimizer(spec, second);
    for (int step = 0; step < 5; ++step) {
      SetGradients(first, step);
      original->Step(step, 0.01);
    }
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < first.size(); ++i) second[i].tensor.copy_(first[i].tensor);
    for (std::size_t i = 0; i < original->state().size(); ++i) {
      joiner->state()[i].tensor.copy_(original->state()[i].tensor);
    }
    SetGradients(first, 5);
    SetGradients(second, 5);
    original->Step(5, 0.01);
    joiner->Step(5, 0.01);
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].tensor.equal(second[i].tensor));
  }
}

}  // namespace
}  // namespace lockstep::train

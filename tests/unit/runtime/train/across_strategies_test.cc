// Options of the model and of the optimizer that no strategy has code for, with each strategy.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "runtime/train/loop/evaluation.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

api::TrainingSpec Training(api::Strategy strategy) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.strategy = strategy;
  spec.micro_batch_size = 4;
  spec.sync.every_steps = strategy == api::Strategy::kLocalsgd ? 2 : 1;
  return spec;
}

// Loss and gradient norm of the last step of each rank, and the weights where each rank has all of them.
std::vector<std::string> ResultsOf(const api::TrainingSpec& spec, int world, int devices) {
  RoundConnector connector;
  auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.devices = std::vector<at::Device>(static_cast<std::size_t>(devices), at::kCPU)});
    auto communicator = connector.Enter(1, rank, world);
    REQUIRE(communicator.ok());
    REQUIRE(trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
    std::ostringstream text;
    text << std::hexfloat << trainer.last().loss << " " << trainer.last().gradient_norm;
    const bool has_weights = !api::DividesLayers(spec.strategy) && spec.strategy != api::Strategy::kFsdp;
    if (has_weights) text << " " << std::hash<std::string>{}(trainer.WeightBytes());
    parent.Send(text.str());
    return 0;
  });
  std::vector<std::string> results;
  for (auto& rank : ranks) results.push_back(rank.channel().Receive(kPatience).value_or("nothing"));
  ExpectAllSucceed(ranks);
  return results;
}

struct Case {
  api::Strategy strategy;
  int world = 2;
  int devices = 1;
};

TEST(GradientCheckpointingOfStrategies, ChangesNoBit) {
  // With async, which rank takes which samples depends on time, so it runs alone.
  const std::array<Case, 9> cases = {{{api::Strategy::kDdp},
                                      {api::Strategy::kFsdp, 3},
                                      {api::Strategy::kZero1},
                                      {api::Strategy::kPipeline},
                                      {api::Strategy::kHybrid, 4},
                                      {api::Strategy::kDataparallel, 1, 2},
                                      {api::Strategy::kModelparallel, 1, 2},
                                      {api::Strategy::kLocalsgd},
                                      {api::Strategy::kAsync, 1}}};
  for (const Case& of : cases) {
    SCOPED_TRACE(api::NameOf(of.strategy));
    api::TrainingSpec spec = Training(of.strategy);
    const std::vector<std::string> plain = ResultsOf(spec, of.world, of.devices);
    ASSERT_NE(plain.front(), "nothing");
    spec.gradient_checkpointing = true;
    EXPECT_EQ(ResultsOf(spec, of.world, of.devices), plain);
  }
}

TEST(GradientCheckpointingOfStrategies, ChangesNoBitWithDeterminismWorld) {
  api::TrainingSpec spec = Training(api::Strategy::kDdp);
  spec.determinism = api::Determinism::kWorld;
  const std::vector<std::string> plain = ResultsOf(spec, 1, 1);
  spec.gradient_checkpointing = true;
  EXPECT_EQ(ResultsOf(spec, 3, 1), std::vector<std::string>(3, plain.front()));
}

TEST(GradientCheckpointingOfStrategies, IsUsedByTheModelOfEachState) {
  for (const api::Strategy strategy : {api::Strategy::kDdp, api::Strategy::kPipeline}) {
    api::TrainingSpec spec = Training(strategy);
    spec.gradient_checkpointing = true;
    Trainer trainer(spec);
    const at::Tensor output = trainer.state().model->Layers().front().forward(at::ones({1, 1, 8, 8}));
    EXPECT_NE(output.grad_fn()->name().find("Recomputed"), std::string::npos) << output.grad_fn()->name();
  }
}

// Everything that a group can set. A layer of each stage is frozen in part.
api::TrainingSpec GroupedTraining(api::Strategy strategy) {
  api::TrainingSpec spec = Training(strategy);
  spec.model.name = api::ModelName::kMlp;  // pipelines would draw other numbers for the dropout of the cnn
  spec.model.mlp.hidden_sizes = {16, 16, 16};
  spec.optimizer.weight_decay = 10;  // times the rate of 0.001 in each step
  spec.optimizer.weight_decay_on = api::WeightDecayOn::kMatrices;
  spec.optimizer.groups = {{.match = {"fc1.bias", "fc4.bias"}, .frozen = true},
                           {.match = {"fc2.*"}, .weight_decay = 1, .learning_rate_scale = 3}};
  return spec;
}

std::vector<double> NumbersOf(const std::string& result) {
  std::vector<double> numbers;
  std::istringstream text(result);
  for (std::string word; text >> word;) numbers.push_back(std::strtod(word.c_str(), nullptr));
  return numbers;
}

TEST(ParameterGroupsOfStrategies, TrainTheSameWithEach) {
  const std::vector<std::string> of_ddp = ResultsOf(GroupedTraining(api::Strategy::kDdp), 2, 1);
  ASSERT_NE(of_ddp.front(), "nothing");
  EXPECT_EQ(ResultsOf(GroupedTraining(api::Strategy::kZero1), 2, 1), of_ddp) << "the same bits";
  api::TrainingSpec without = GroupedTraining(api::Strategy::kDdp);
  without.optimizer.groups.clear();
  EXPECT_NE(ResultsOf(without, 2, 1), of_ddp);
  const std::vector<double> expected = NumbersOf(of_ddp.front());
  const std::array<Case, 5> cases = {{{api::Strategy::kFsdp, 3},
                                      {api::Strategy::kPipeline},
                                      {api::Strategy::kHybrid, 4},
                                      {api::Strategy::kDataparallel, 1, 2},
                                      {api::Strategy::kModelparallel, 1, 2}}};
  for (const Case& of : cases) {
    SCOPED_TRACE(api::NameOf(of.strategy));
    const auto results = ResultsOf(GroupedTraining(of.strategy), of.world, of.devices);
    ASSERT_NE(results.front(), "nothing");
    const std::vector<double> found = NumbersOf(results.front());
    for (const std::size_t i : {0, 1}) EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]);
  }
}

// Muon treats one layer of each stage as AdamW does. The last layer has fewer rows than columns.
api::TrainingSpec TrainingWith(api::OptimizerName name, api::Strategy strategy) {
  api::TrainingSpec spec = GroupedTraining(strategy);
  spec.optimizer.name = name;
  spec.optimizer.learning_rate = 0.01;
  spec.optimizer.weight_decay = 1;
  if (name != api::OptimizerName::kMuon) return spec;
  spec.optimizer.momentum = 0.95;
  spec.optimizer.nesterov = true;
  spec.optimizer.groups[1].use_muon = false;
  return spec;
}

TEST(OptimizersOfWholeParameters, TrainTheSameWithEachStrategy) {
  for (const api::OptimizerName name : {api::OptimizerName::kLamb, api::OptimizerName::kMuon}) {
    SCOPED_TRACE(api::NameOf(name));
    const auto of_ddp = ResultsOf(TrainingWith(name, api::Strategy::kDdp), 2, 1);
    ASSERT_NE(of_ddp.front(), "nothing");
    EXPECT_EQ(ResultsOf(TrainingWith(name, api::Strategy::kZero1), 2, 1), of_ddp) << "the same bits";
    const std::vector<double> expected = NumbersOf(of_ddp.front());
    const auto of_adamw = ResultsOf(TrainingWith(api::OptimizerName::kAdamw, api::Strategy::kDdp), 2, 1);
    EXPECT_GT(std::abs(NumbersOf(of_adamw.front())[0] - expected[0]), 1e-4 * expected[0]);
    const std::array<Case, 5> cases = {{{api::Strategy::kPipeline},
                                        {api::Strategy::kHybrid, 4},
                                        {api::Strategy::kDataparallel, 1, 2},
                                        {api::Strategy::kModelparallel, 1, 2},
                                        {api::Strategy::kLocalsgd, 1}}};
    for (const Case& of : cases) {
      SCOPED_TRACE(api::NameOf(of.strategy));
      const auto results = ResultsOf(TrainingWith(name, of.strategy), of.world, of.devices);
      ASSERT_NE(results.front(), "nothing");
      const std::vector<double> found = NumbersOf(results.front());
      EXPECT_NEAR(found[0], expected[0], 1e-5 * expected[0]);
    }
  }
}

TEST(ParameterGroupsOfStrategies, FrozenParametersHaveNoOptimizerStateAndDoNotChange) {
  for (const api::Strategy strategy :
       {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kPipeline, api::Strategy::kLocalsgd}) {
    SCOPED_TRACE(api::NameOf(strategy));
    RoundConnector connector;
    auto ranks = StartRanks(1, [&](int, LineChannel&) {
      at::set_num_threads(1);
      Trainer trainer(GroupedTraining(strategy));
      auto communicator = connector.Enter(1, 0, 1);
      REQUIRE(communicator.ok());
      REQUIRE(trainer.Sync(**communicator).ok());
      std::map<std::string, at::Tensor> before;
      for (const NamedTensor& named : trainer.state().parameters)
        before[named.name] = named.tensor.detach().clone();
      REQUIRE(trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
      for (const NamedTensor& named : trainer.state().parameters) {
        const bool is_frozen = named.name == "fc1.bias" || named.name == "fc4.bias";
        REQUIRE(named.tensor.equal(before.at(named.name)) == is_frozen);
      }
      int moments_of_fc1 = 0;
      for (const NamedTensor& named : trainer.state().Tensors()) {
        REQUIRE(!(named.name.starts_with("optimizer.") && named.name.ends_with("fc1.bias")));
        moments_of_fc1 += named.name.starts_with("optimizer.") && named.name.ends_with("fc1.weight") ? 1 : 0;
      }
      REQUIRE(moments_of_fc1 == 2);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

// What happens to the training at steps 3 and 5, with a new round after it.
enum class Between { kNothing, kEvaluation, kBrokenEvaluation };

// On each rank loss and gradient norm of the last step, then the losses of the evaluations.
std::vector<std::string> ResultsWith(const api::TrainingSpec& spec, int world, int devices, Between between) {
  std::array<RoundConnector, 3> connectors;
  auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    const data::Datasets datasets = data::OpenDatasets(spec).value();
    Trainer trainer(spec, {.non_finite = {7},
                           .devices = std::vector<at::Device>(static_cast<std::size_t>(devices), at::kCPU)});
    Evaluator evaluator(spec, trainer.state(), *datasets.test);
    std::ostringstream evaluations;
    for (std::size_t round = 0; round < connectors.size(); ++round) {
      const int64_t until = std::array{3, 5, 7}[round];
      auto communicator = connectors[round].Enter(static_cast<int64_t>(round) + 1, rank, world);
      REQUIRE(communicator.ok());
      REQUIRE(trainer.Sync(**communicator).ok());
      REQUIRE(trainer.RunRound(*communicator, until).ok());
      if (between == Between::kNothing) continue;
      int batches = 0;
      const auto leave = [&] {
        if (between == Between::kBrokenEvaluation && ++batches == 2) (*communicator)->Abort();
        return false;
      };
      const std::vector<double> speeds(static_cast<std::size_t>(world), 1);
      const auto found = evaluator.Run(**communicator, speeds, leave, {});
      REQUIRE(found.ok() == (between == Between::kEvaluation));
      if (found.ok()) evaluations << " " << std::hexfloat << found->loss;
    }
    std::ostringstream text;
    text << std::hexfloat << trainer.last().loss << " " << trainer.last().gradient_norm << evaluations.str();
    parent.Send(text.str());
    return 0;
  });
  std::vector<std::string> results;
  for (auto& rank : ranks) results.push_back(rank.channel().Receive(kPatience).value_or("nothing"));
  ExpectAllSucceed(ranks);
  return results;
}

// Some steps are skipped, because a sample is not finite.
api::TrainingSpec AveragedTraining(api::Strategy strategy) {
  api::TrainingSpec spec = GroupedTraining(strategy);
  spec.data.synthetic.test_samples = 40;
  spec.optimizer.learning_rate = 0.01;
  spec.optimizer.weight_decay = 0;
  spec.optimizer.weight_average = api::WeightAverageSpec{.decay = 0.8};
  spec.evaluation = api::EvaluationSpec{.batch_size = 4};
  return spec;
}

const std::array<Case, 7> kAveraging = {{{api::Strategy::kDdp},
                                         {api::Strategy::kZero1, 3},
                                         {api::Strategy::kFsdp, 3},
                                         {api::Strategy::kPipeline},
                                         {api::Strategy::kHybrid, 4},
                                         {api::Strategy::kDataparallel, 1, 2},
                                         {api::Strategy::kModelparallel, 1, 2}}};

TEST(WeightAverageOfStrategies, IsEvaluatedByEachAsByDdp) {
  const api::TrainingSpec of_ddp = AveragedTraining(api::Strategy::kDdp);
  const std::vector<double> expected = NumbersOf(ResultsWith(of_ddp, 1, 1, Between::kEvaluation).front());
  ASSERT_EQ(expected.size(), 5U);
  api::TrainingSpec without = of_ddp;
  without.optimizer.weight_average.reset();
  const std::vector<double> plain = NumbersOf(ResultsWith(without, 1, 1, Between::kEvaluation).front());
  ASSERT_EQ(plain.size(), 5U);
  for (const std::size_t i : {2, 3, 4}) EXPECT_GT(std::abs(plain[i] - expected[i]), 1e-3 * expected[i]);
  for (const Case& of : kAveraging) {
    SCOPED_TRACE(api::NameOf(of.strategy));
    const auto results =
        ResultsWith(AveragedTraining(of.strategy), of.world, of.devices, Between::kEvaluation);
    for (const std::string& result : results) {
      const std::vector<double> found = NumbersOf(result);
      ASSERT_EQ(found.size(), 5U);
      for (const std::size_t i : {2, 3, 4}) EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]);
    }
  }
}

TEST(WeightAverageOfStrategies, ChangesNoBitOfTheTraining) {
  for (const Case& of : kAveraging) {
    SCOPED_TRACE(api::NameOf(of.strategy));
    const api::TrainingSpec spec = AveragedTraining(of.strategy);
    const auto quiet = ResultsWith(spec, of.world, of.devices, Between::kNothing);
    ASSERT_NE(quiet.front(), "nothing");
    const auto evaluated = ResultsWith(spec, of.world, of.devices, Between::kEvaluation);
    for (std::size_t rank = 0; rank < quiet.size(); ++rank)
      EXPECT_TRUE(evaluated[rank].starts_with(quiet[rank] + " "));
    EXPECT_EQ(ResultsWith(spec, of.world, of.devices, Between::kBrokenEvaluation), quiet);
  }
}

}  // namespace
}  // namespace lockstep::train

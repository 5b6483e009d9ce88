#include "runtime/train/pipeline/pipeline_stepper.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "runtime/train/step/gradients.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/token_folder.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

// Without dropout, so that one process with the whole batch draws nothing else.
api::TrainingSpec Training(api::Strategy strategy, int stages = 2) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.cnn.dropout = 0;
  spec.strategy = strategy;
  spec.pipeline.stages = stages;
  spec.optimizer.learning_rate = 0.1;
  return spec;
}

api::TrainingSpec MlpTraining(api::Strategy strategy, int stages = 2) {
  api::TrainingSpec spec = Training(strategy, stages);
  spec.model.name = api::ModelName::kMlp;
  spec.model.mlp.hidden_sizes = {40, 30, 20};
  return spec;
}

api::TrainingSpec GptTraining(const TokenFolder& folder, api::Strategy strategy, int stages = 2) {
  api::TrainingSpec spec = Training(strategy, stages);
  spec.model.name = api::ModelName::kGpt;
  spec.model.gpt = {
      .layers = 3, .heads = 2, .embedding_size = 16, .context_length = 8, .vocabulary_size = 256};
  // Not Adam, because it amplifies rounding errors of the keys' biases, whose gradient is zero, to a whole
  // step.
  spec.optimizer.name = api::OptimizerName::kSgd;
  spec.optimizer.momentum = 0.9;
  spec.data.format = api::DataFormat::kTokens;
  spec.data.path = folder.path();
  spec.data.synthetic.shape = {8};  // the input for which Trainer creates the model
  return spec;
}

// One process with the whole batch of each step, implemented as simply as possible.
class Reference {
 public:
  explicit Reference(api::TrainingSpec spec) : spec_(std::move(spec)) {
    spec_.strategy = api::Strategy::kDdp;
    state_ = std::move(MakeTrainingState(spec_, {spec_.data.synthetic.shape, 3})).value();
    state_->step = 0;
  }

  void Step(const data::TrainingSamples& samples) {
    const at::AutoGradMode with_gradients(true);
    const int64_t count = samples.plan().CountOf(state_->step);
    const data::Batch batch = samples.Get({state_->step, 0, count});
    ReplicatedModel& replicated = testing::ReplicatedOf(*state_);
    for (const at::Tensor& parameter : replicated.trained()) parameter.mutable_grad().reset();
    const at::Tensor loss = state_->model->LossSum(state_->model->Forward(batch.inputs), batch.targets);
    loss.backward();
    loss_ = loss.item<double>() / static_cast<double>(count);
    norm_ = AverageAndClip(replicated.trained(), static_cast<double>(count), spec_.optimizer.clip_norm);
    LOCKSTEP_CHECK(replicated.Update(nullptr, spec_.optimizer.learning_rate).ok());
    ++state_->step;
  }
  [[nodiscard]] const TrainingState& state() const { return *state_; }
  [[nodiscard]] double loss() const { return loss_; }
  [[nodiscard]] double norm() const { return norm_; }

 private:
  api::TrainingSpec spec_;
  std::unique_ptr<TrainingState> state_;
  double loss_ = 0;
  double norm_ = 0;
};

double RelativeError(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).norm() / (expected.norm() + 1e-12)).item<double>();
}

// The values that this rank holds.
struct Compared {
  int64_t gradients = 0;
  double worst = 0;
};

Compared CompareGradients(const TrainingState& state, const TrainingState& expected) {
  Compared compared;
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    const at::Tensor gradient = state.parameters[i].tensor.grad();
    if (!gradient.defined()) continue;
    ++compared.gradients;
    compared.worst = std::max(compared.worst, RelativeError(gradient, expected.parameters[i].tensor.grad()));
  }
  return compared;
}

double WorstOfHeld(const TrainingState& state, const TrainingState& expected) {
  double worst = 0;
  const std::vector<NamedTensor> all = expected.Tensors();
  const std::vector<NamedTensor> mine = state.Tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (mine[i].name != all[i].name) return 1;
    const bool is_stand_in = mine[i].tensor.storage().nbytes() < mine[i].tensor.nbytes();
    if (is_stand_in) continue;
    const double error = RelativeError(mine[i].tensor, all[i].tensor);
    if (error > 1e-5)
      std::fprintf(stderr, "%s: relative error %.2g, of %.2g\n", all[i].name.c_str(), error,
                   all[i].tensor.norm().item<double>());
    worst = std::max(worst, error);
  }
  return worst;
}

int64_t HeldElements(const TrainingState& state) {
  int64_t elements = 0;
  for (const NamedTensor& parameter : state.parameters) {
    if (parameter.tensor.grad().defined()) elements += parameter.tensor.numel();
  }
  return elements;
}

// Takes three steps; compares the gradients of the first one, and the final state.
void ExpectWhatOneProcessComputes(const api::TrainingSpec& spec, int world) {
  SCOPED_TRACE(std::to_string(world) + " ranks");
  RoundConnector connector;
  auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, world);
    REQUIRE(communicator.ok());
    Trainer trainer(spec);
    const auto synced = trainer.Sync(**communicator);
    REQUIRE(synced.ok() && *synced == StateSource::kFresh);
    Reference reference(spec);
    double worst = 0;
    int64_t gradients = 0;
    for (int64_t step = 1; step <= 3; ++step) {
      const auto run = trainer.RunRound(*communicator, step);
      if (!run.ok()) std::fprintf(stderr, "rank %d: %s\n", rank, run.error().ToString().c_str());
      REQUIRE(run.ok());
      reference.Step(trainer.samples());
      REQUIRE(std::abs(trainer.last().loss - reference.loss()) < 1e-5 * reference.loss());
      REQUIRE(std::abs(trainer.last().gradient_norm - reference.norm()) < 1e-5 * reference.norm());
      if (step > 1) continue;
      const Compared compared = CompareGradients(trainer.state(), reference.state());
      worst = compared.worst;
      gradients = compared.gradients;
    }
    const double weights = WorstOfHeld(trainer.state(), reference.state());
    parent.Send(std::to_string(worst * 1e9) + " " + std::to_string(gradients) + " " +
                std::to_string(weights * 1e9) + " " + std::to_string(HeldElements(trainer.state())));
    return 0;
  });
  double worst = 0;
  int64_t gradients = 0;
  int64_t most_elements = 0;
  for (auto& rank : ranks) {
    std::istringstream line(rank.channel().Receive(kPatience).value_or("1e9 0 1e9 0"));
    double of_gradients = 0;
    double of_weights = 0;
    int64_t count = 0;
    int64_t elements = 0;
    line >> of_gradients >> count >> of_weights >> elements;
    worst = std::max(worst, of_gradients * 1e-9);
    gradients += count;
    most_elements = std::max(most_elements, elements);
    EXPECT_LE(of_weights * 1e-9, 1e-5);
  }
  std::printf("%d ranks: %lld gradients, relative error %.2g, %lld elements at most on a rank\n", world,
              static_cast<long long>(gradients), worst, static_cast<long long>(most_elements));
  EXPECT_LE(worst, 1e-6);
  EXPECT_GT(gradients, 0);
  ExpectAllSucceed(ranks);
}

TEST(Pipeline, GivesTheGradientsOfOneProcess) {
  for (const int world : {1, 2, 3, 4})
    ExpectWhatOneProcessComputes(MlpTraining(api::Strategy::kPipeline), world);
  ExpectWhatOneProcessComputes(Training(api::Strategy::kPipeline), 2);
}

TEST(Pipeline, LeavesRanksIdleThatNoLayerIsLeftFor) {
  ExpectWhatOneProcessComputes(Training(api::Strategy::kPipeline), 4);  // three layers
}

TEST(Pipeline, GivesThemWithAFewLargeMicroBatches) {
  api::TrainingSpec spec = MlpTraining(api::Strategy::kPipeline);
  spec.micro_batch_size = 9;  // 9, 9, 4
  ExpectWhatOneProcessComputes(spec, 3);
  spec.micro_batch_size = 100;  // fewer than stages
  ExpectWhatOneProcessComputes(spec, 3);
}

TEST(Pipeline, SumsTheTiedEmbeddingOverBothEnds) {
  const TokenFolder folder;
  for (const int world : {1, 2, 3})
    ExpectWhatOneProcessComputes(GptTraining(folder, api::Strategy::kPipeline), world);
}

TEST(Hybrid, GivesTheGradientsOfOneProcess) {
  for (const int world : {1, 3, 4}) ExpectWhatOneProcessComputes(MlpTraining(api::Strategy::kHybrid), world);
  ExpectWhatOneProcessComputes(MlpTraining(api::Strategy::kHybrid, 3), 6);
  // Two micro-batches in the last step for three pipelines.
  api::TrainingSpec spec = MlpTraining(api::Strategy::kHybrid);
  spec.micro_batch_size = 3;
  ExpectWhatOneProcessComputes(spec, 6);
}

TEST(Hybrid, SumsTheTiedEmbeddingOverBothEndsOfAllPipelines) {
  const TokenFolder folder;
  ExpectWhatOneProcessComputes(GptTraining(folder, api::Strategy::kHybrid), 4);
}

// A process's ranks in the rounds that it joins; -1: it is away.
struct Round {
  std::vector<int> rank_of;  // by process
  int64_t until_step;

  [[nodiscard]] int world() const {
    return static_cast<int>(
        std::count_if(rank_of.begin(), rank_of.end(), [](int rank) { return rank >= 0; }));
  }
};

// The source of each process's state in each round: "kept fresh - …".
std::vector<std::string> SourcesOf(const api::TrainingSpec& spec, const std::vector<Round>& rounds) {
  std::vector<RoundConnector> connectors(rounds.size());
  const int processes = static_cast<int>(rounds.front().rank_of.size());
  auto ranks = StartRanks(processes, [&](int process, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    Reference reference(spec);
    std::string sources;
    for (std::size_t round = 0; round < rounds.size(); ++round) {
      const int rank = rounds[round].rank_of[static_cast<std::size_t>(process)];
      if (rank < 0) {
        sources += "- ";
        continue;
      }
      auto communicator =
          connectors[round].Enter(static_cast<int64_t>(round) + 1, rank, rounds[round].world());
      REQUIRE(communicator.ok());
      const auto source = trainer.Sync(**communicator);
      REQUIRE(source.ok());
      sources += std::string(NameOf(*source)) + " ";
      REQUIRE(trainer.RunRound(*communicator, rounds[round].until_step).ok());
      REQUIRE((*communicator)->Barrier().ok());
    }
    for (int64_t step = 0; step < rounds.back().until_step; ++step) reference.Step(trainer.samples());
    const bool is_in_the_last = rounds.back().rank_of[static_cast<std::size_t>(process)] >= 0;
    REQUIRE(!is_in_the_last || WorstOfHeld(trainer.state(), reference.state()) < 1e-5);
    parent.Send(sources);
    return 0;
  });
  std::vector<std::string> sources;
  for (auto& rank : ranks) sources.push_back(rank.channel().Receive(kPatience).value_or("nothing"));
  ExpectAllSucceed(ranks);
  return sources;
}

TEST(Pipeline, MovesLayersWhenItGrows) {
  const auto sources =
      SourcesOf(MlpTraining(api::Strategy::kPipeline), {{{0, 1, -1}, 2}, {{1, 2, 0}, 4}, {{2, 1, 0}, 6}});
  EXPECT_EQ(sources, (std::vector<std::string>{"fresh kept kept ", "fresh kept kept ", "- peer kept "}));
}

TEST(Pipeline, BeginsAgainWhereALayerIsLostWithItsRank) {
  const auto sources = SourcesOf(MlpTraining(api::Strategy::kPipeline), {{{0, 1, 2}, 2}, {{0, -1, 1}, 5}});
  EXPECT_EQ(sources, (std::vector<std::string>{"fresh fresh ", "fresh - ", "fresh fresh "}));
}

// Takes three steps with a copy after the second one; then one rank, or two neighbours, are lost.
std::vector<std::string> SourcesAfterALoss(const api::TrainingSpec& spec, const std::vector<int>& rank_of) {
  RoundConnector first;
  RoundConnector second;
  const int left =
      static_cast<int>(std::count_if(rank_of.begin(), rank_of.end(), [](int rank) { return rank >= 0; }));
  auto ranks = StartRanks(static_cast<int>(rank_of.size()), [&](int process, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    auto before = first.Enter(1, process, static_cast<int>(rank_of.size()));
    REQUIRE(before.ok() && trainer.Sync(**before).ok());
    REQUIRE(trainer.RunRound(*before, 2).ok() && trainer.state().Copy(**before).ok());
    REQUIRE(trainer.RunRound(*before, 3).ok() && (*before)->Barrier().ok());
    const int rank = rank_of[static_cast<std::size_t>(process)];
    if (rank < 0) {
      parent.Send("-");
      return 0;
    }
    auto after = second.Enter(2, rank, left);
    REQUIRE(after.ok());
    const auto source = trainer.Sync(**after);
    REQUIRE(source.ok());
    const int64_t from = trainer.state().step;
    REQUIRE(trainer.RunRound(*after, 5).ok());
    Reference reference(spec);
    for (int64_t step = 0; step < 5; ++step) reference.Step(trainer.samples());
    REQUIRE(WorstOfHeld(trainer.state(), reference.state()) < 1e-5);
    parent.Send(std::string(NameOf(*source)) + " " + std::to_string(from));
    return 0;
  });
  std::vector<std::string> sources;
  for (auto& rank : ranks) sources.push_back(rank.channel().Receive(kPatience).value_or("nothing"));
  ExpectAllSucceed(ranks);
  return sources;
}

TEST(Pipeline, GoesBackToTheCopiesInMemoryWhereAStageIsLost) {
  const api::TrainingSpec spec = MlpTraining(api::Strategy::kPipeline);
  EXPECT_EQ(SourcesAfterALoss(spec, {0, -1, 1}), (std::vector<std::string>{"copy 2", "-", "copy 2"}));
  EXPECT_EQ(SourcesAfterALoss(spec, {0, -1, 1, 2}),
            (std::vector<std::string>{"copy 2", "-", "copy 2", "copy 2"}));
  // The copy of the third rank's stage is on the fourth rank, that of the second rank's was on the third.
  EXPECT_EQ(SourcesAfterALoss(spec, {0, -1, -1, 1}),
            (std::vector<std::string>{"fresh 0", "-", "-", "fresh 0"}));
}

TEST(Pipeline, KeepsItsCopiesAliveWhileATiedEmbeddingMoves) {
  const TokenFolder folder;
  EXPECT_EQ(SourcesAfterALoss(GptTraining(folder, api::Strategy::kPipeline), {1, 0, -1}),
            (std::vector<std::string>{"copy 2", "copy 2", "-"}));
}

TEST(Hybrid, ContinuesFromTheStageReplicaOfALostRank) {
  const auto sources =
      SourcesOf(MlpTraining(api::Strategy::kHybrid),
                {{{0, 1, 2, 3}, 2}, {{0, 1, -1, 2}, 4}, {{0, 1, 3, 2}, 5}, {{0, -1, 1, -1}, 7}});
  EXPECT_EQ(sources, (std::vector<std::string>{"fresh kept kept kept ", "fresh kept kept - ",
                                               "fresh - peer kept ", "fresh kept kept - "}));
}

// Computes the gradients as one rank with all layers.
Result<StepEnd> MakeGradients(Trainer& trainer, const api::TrainingSpec& spec, int64_t round) {
  const at::AutoGradMode with_gradients(true);
  StagedState& staged = testing::StagesOf(trainer.state());
  LOCKSTEP_TRY(staged.BeginStep());
  const int64_t count = trainer.samples().plan().CountOf(0);
  const data::Batch batch = trainer.samples().Get({0, 0, count});
  Model& model = *trainer.state().model;
  const at::Tensor loss = model.LossSum(model.Forward(batch.inputs), batch.targets);
  loss.backward();
  staged.AwaitEnd(round, spec.optimizer.learning_rate);
  return StepEnd{static_cast<double>(count), loss.item<double>(), staged.SquaresOnce()};
}

// One rank learned how the step ended; the other did not, because its connection broke.
TEST(Pipeline, MakesTheStepThatEndedForAnother) {
  const api::TrainingSpec spec = MlpTraining(api::Strategy::kPipeline);
  RoundConnector alone[2];
  RoundConnector together;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    auto first = alone[rank].Enter(1, 0, 1);
    REQUIRE(first.ok() && trainer.Sync(**first).ok());
    const auto end = MakeGradients(trainer, spec, 1);
    REQUIRE(end.ok());
    if (rank == 1) REQUIRE(testing::StagesOf(trainer.state()).EndStep(*end, 1).ok());
    auto second = together.Enter(2, rank, 2);
    REQUIRE(second.ok());
    const auto source = trainer.Sync(**second);
    REQUIRE(source.ok() && trainer.state().step == 1);
    Reference reference(spec);
    reference.Step(trainer.samples());
    REQUIRE(WorstOfHeld(trainer.state(), reference.state()) < 1e-6);
    parent.Send(std::string(NameOf(*source)));
    return 0;
  });
  for (auto& rank : ranks) EXPECT_EQ(rank.channel().Receive(kPatience), "kept");
  ExpectAllSucceed(ranks);
}

TEST(Pipeline, SkipsAStepThatIsNotFiniteOnAllRanks) {
  api::TrainingSpec spec = MlpTraining(api::Strategy::kPipeline);
  const std::vector<int64_t> non_finite = PlanOf(spec).Ids(0, 3, 4);
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Trainer trainer(spec, {.non_finite = non_finite});
    REQUIRE(trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, 1).ok());
    const StepReport skipped = trainer.last();
    REQUIRE(!skipped.applied && trainer.state().step == 1);
    const Reference reference(spec);  // before the first step
    REQUIRE(WorstOfHeld(trainer.state(), reference.state()) == 0);
    REQUIRE(trainer.RunRound(*communicator, 2).ok());
    REQUIRE(trainer.last().applied);
    parent.Send(skipped.not_finite);
    return 0;
  });
  for (auto& rank : ranks)
    EXPECT_EQ(rank.channel().Receive(kPatience),
              "rank 0: gradient of fc1.bias; rank 1: loss, gradient of fc4.bias");
  ExpectAllSucceed(ranks);
}

// Including dropout: random numbers do not depend on the coordinate in the mesh.
TEST(Pipeline, DrawsTheSameWithAnyNumberOfRanks) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.strategy = api::Strategy::kPipeline;
  std::vector<double> losses;
  for (const int world : {1, 2, 3}) {
    RoundConnector connector;
    auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
      at::set_num_threads(1);
      auto communicator = connector.Enter(1, rank, world);
      REQUIRE(communicator.ok());
      Trainer trainer(spec);
      REQUIRE(trainer.Sync(**communicator).ok());
      REQUIRE(trainer.RunRound(*communicator, 3).ok());
      parent.Send(std::to_string(trainer.last().loss));
      return 0;
    });
    losses.push_back(std::stod(ranks[0].channel().Receive(kPatience).value_or("-1")));
    ExpectAllSucceed(ranks);
  }
  EXPECT_GT(losses[0], 0);
  EXPECT_NEAR(losses[1], losses[0], 1e-4);
  EXPECT_NEAR(losses[2], losses[0], 1e-4);
}

// Each parameter and each running statistic has its layer.
TEST(StagedState, DividesOurModels) {
  for (const api::ModelName name : {api::ModelName::kMlp, api::ModelName::kCnn, api::ModelName::kResnet18,
                                    api::ModelName::kResnet50, api::ModelName::kGpt}) {
    api::TrainingSpec spec = Training(api::Strategy::kPipeline);
    spec.model.name = name;
    spec.model.gpt = {
        .layers = 2, .heads = 2, .embedding_size = 16, .context_length = 8, .vocabulary_size = 32};
    const bool is_gpt = name == api::ModelName::kGpt;
    const ModelInput input{is_gpt ? std::vector<int64_t>{8} : std::vector<int64_t>{3, 32, 32}, 10};
    const auto state = MakeTrainingState(spec, input);
    ASSERT_TRUE(state.ok()) << state.error().ToString();
    EXPECT_EQ((*state)->Tensors().size(),
              MakeTrainingState({.model = spec.model, .optimizer = spec.optimizer}, input)
                  .value()
                  ->Tensors()
                  .size());
  }
}

TEST(StagedState, RefusesAModelWithoutLayers) {
  class Whole final : public Model {
   public:
    Whole() { register_parameter("weight", at::ones({1})); }
    at::Tensor Forward(const at::Tensor& inputs) override { return inputs; }
  };
  const auto made =
      StagedState::Make(Training(api::Strategy::kPipeline), {}, std::make_shared<Whole>(), at::kCPU);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(made.error().message.find("spec.training.strategy: pipeline"), std::string::npos);
  EXPECT_NE(made.error().message.find("override lockstep::Model::Layers"), std::string::npos);
}

TEST(StagedState, RefusesAParameterThatIsInNoLayer) {
  class Forgetful final : public Model {
   public:
    Forgetful() { register_parameter("forgotten", at::ones({1})); }
    std::vector<Layer> Layers() override {
      return {{[](const at::Tensor& x) { return x; }, {}}};
    }
  };
  const auto made =
      StagedState::Make(Training(api::Strategy::kPipeline), {}, std::make_shared<Forgetful>(), at::kCPU);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("forgotten"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::train

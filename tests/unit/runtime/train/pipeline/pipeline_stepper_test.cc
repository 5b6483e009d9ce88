#include "runtime/train/pipeline/pipeline_stepper.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/pipeline/as_one_process.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

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

}  // namespace
}  // namespace lockstep::train

#include "runtime/train/fsdp/fsdp_stepper.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <iostream>
#include <map>

#include "runtime/train/fsdp/layer_pass.h"
#include "runtime/train/loop/evaluation.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/token_folder.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using api::Precision;
using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

constexpr int64_t kSteps = Trainer::kTotalSteps;

api::TrainingSpec Training(api::Strategy strategy) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.cnn.dropout = 0;  // drawn by shares, which differ between worlds
  spec.strategy = strategy;
  return spec;
}

FsdpState& FsdpOf(Trainer& trainer) { return dynamic_cast<FsdpState&>(trainer.state()); }

// The whole state, collected on rank 0: tensors by name.
Result<std::map<std::string, at::Tensor>> Collected(Trainer& trainer, comm::Communicator& communicator) {
  std::map<std::string, at::Tensor> all;
  if (trainer.state().has_whole_model()) {
    for (const NamedTensor& named : trainer.state().Tensors()) all[named.name] = named.tensor;
    return all;
  }
  const FsdpState& state = FsdpOf(trainer);
  const std::vector<int> to_first(state.layers().described().size(), 0);
  LOCKSTEP_TRY(const auto divided, state.layers().Collect(communicator, to_first));
  for (const NamedTensor& named : divided) all[named.name] = named.tensor;
  for (const NamedTensor& named : state.Replicated()) all[named.name] = named.tensor;
  return all;
}

// What `ddp` gives on one rank.
std::map<std::string, at::Tensor> Reference(const api::TrainingSpec& spec, int64_t steps,
                                            const TrainerOptions& options, StepReport& last) {
  Trainer trainer(spec, options);
  RoundConnector alone;
  const auto communicator = std::move(alone.Enter(1, 0, 1)).value();
  LOCKSTEP_CHECK(trainer.Sync(*communicator).ok() && trainer.RunRound(communicator, steps).ok());
  last = trainer.last();
  std::map<std::string, at::Tensor> all;
  for (const NamedTensor& named : trainer.state().Tensors()) all[named.name] = named.tensor;
  return all;
}

// Whether the state of all ranks, and the newest report, are those of `ddp` after as many steps.
bool IsAsWithDdp(api::TrainingSpec spec, Trainer& trainer, comm::Communicator& communicator,
                 const TrainerOptions& options = {}) {
  const auto mine = Collected(trainer, communicator);
  if (!mine.ok()) return false;
  if (communicator.rank() > 0) return true;
  spec.strategy = api::Strategy::kDdp;
  StepReport last;
  const auto reference = Reference(spec, trainer.state().step, options, last);
  bool same = mine->size() == reference.size();
  for (const auto& [name, tensor] : reference) {
    const auto found = mine->find(name);
    if (found == mine->end() || !at::allclose(found->second, tensor, 1e-4, 1e-5)) {
      std::cerr << name << " differs\n";
      same = false;
    }
  }
  if (std::abs(last.loss - trainer.last().loss) > 1e-5 * std::abs(last.loss) ||
      std::abs(last.gradient_norm - trainer.last().gradient_norm) > 1e-4 * last.gradient_norm) {
    std::cerr << "loss " << trainer.last().loss << " instead of " << last.loss << ", norm "
              << trainer.last().gradient_norm << " instead of " << last.gradient_norm << "\n";
    same = false;
  }
  return same;
}

void ExpectDdp(const api::TrainingSpec& spec, int world, const TrainerOptions& options = {}) {
  RoundConnector connector;
  auto ranks = StartRanks(world, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Trainer trainer(spec, options);
    auto communicator = connector.Enter(1, rank, world);
    REQUIRE(communicator.ok());
    REQUIRE(trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, kSteps).ok());
    REQUIRE(IsAsWithDdp(
        spec, trainer, **communicator,
        {.non_finite = options.non_finite, .corrupt = options.corrupt, .loss_scale = options.loss_scale}));
    return 0;
  });
  SCOPED_TRACE(std::to_string(world) + " ranks");
  ExpectAllSucceed(ranks);
}

TEST(FsdpStepper, GivesTheStateOfDdpInEachWorld) {
  for (const int world : {1, 2, 3, 4}) ExpectDdp(Training(api::Strategy::kFsdp), world);
}

TEST(FsdpStepper, GivesTheStateOfDdpWithCopies) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  for (const auto& [copies, world] : std::vector<std::pair<int, int>>{{2, 1}, {2, 2}, {3, 4}, {4, 3}}) {
    spec.fsdp.copies = copies;
    ExpectDdp(spec, world);
  }
}

std::vector<double> LossesOf(Trainer& trainer, const std::shared_ptr<comm::Communicator>& communicator,
                             int64_t steps) {
  std::vector<double> losses;
  LOCKSTEP_CHECK(trainer.Sync(*communicator).ok());
  for (int64_t step = 1; step <= steps; ++step) {
    LOCKSTEP_CHECK(trainer.RunRound(communicator, step).ok());
    losses.push_back(trainer.last().loss);
  }
  return losses;
}

TEST(FsdpStepper, HasTheLossesAndWeightsOfDdpOverFiftySteps) {
  constexpr int64_t kMany = 50;
  constexpr double kTolerance = 1e-5;
  const api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  for (const int world : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(world) + " ranks");
    RoundConnector connector;
    auto ranks = StartRanks(world, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      Trainer trainer(spec, {.total_steps = kMany});
      const std::shared_ptr<comm::Communicator> communicator =
          std::move(connector.Enter(1, rank, world)).value();
      const std::vector<double> losses = LossesOf(trainer, communicator, kMany);
      const auto weights = Collected(trainer, *communicator);
      REQUIRE(weights.ok());
      if (rank > 0) return 0;
      api::TrainingSpec plain = spec;
      plain.strategy = api::Strategy::kDdp;
      Trainer reference(plain, {.total_steps = kMany});
      RoundConnector alone;
      const std::vector<double> expected =
          LossesOf(reference, std::move(alone.Enter(1, 0, 1)).value(), kMany);
      for (std::size_t step = 0; step < losses.size(); ++step)
        REQUIRE(std::abs(losses[step] - expected[step]) <= kTolerance);
      for (const NamedTensor& named : reference.state().parameters)
        REQUIRE((weights->at(named.name) - named.tensor).abs().max().item<double>() <= kTolerance);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

TEST(FsdpStepper, KeepsWhatSeveralLayersUseThroughTheStep) {
  const TokenFolder folder;
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.model.name = api::ModelName::kGpt;
  spec.model.gpt = {
      .layers = 3, .heads = 2, .embedding_size = 16, .context_length = 8, .vocabulary_size = 256};
  // Not Adam, because it amplifies rounding errors of the keys' biases, whose gradient is zero.
  spec.optimizer.name = api::OptimizerName::kSgd;
  spec.optimizer.momentum = 0.9;
  spec.data.format = api::DataFormat::kTokens;
  spec.data.path = folder.path();
  spec.data.synthetic.shape = {8};  // the input for which Trainer creates the model
  for (const int world : {1, 3}) ExpectDdp(spec, world);
}

TEST(FsdpStepper, TrainsInHalfPrecision) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.precision = Precision::kFp16;
  ExpectDdp(spec, 1, {.loss_scale = 0x1p18});
}

TEST(FsdpStepper, AddsUpMicroBatchesOfWhichRanksHaveDifferentNumbers) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.micro_batch_size = 3;
  ExpectDdp(spec, 3, {.speeds = {1, 6, 2}});
  spec.global_batch_size = 2;  // the third rank has no sample
  ExpectDdp(spec, 3);
}

TEST(FsdpStepper, LeavesOutCorruptSamplesAndSkipsStepsThatAreNotFinite) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.data.on_corrupt_record = api::OnCorruptRecord::kSkip;
  const std::vector<int64_t> corrupt = PlanOf(spec).Ids(1, 0, 11);  // all of a rank
  ExpectDdp(spec, 2, {.corrupt = corrupt});
  ExpectDdp(spec, 2, {.non_finite = PlanOf(spec).Ids(1, 10, 11)});
}

// Ranks have different numbers of batches, and each needs the layers of all.
TEST(FsdpStepper, EvaluatesTogether) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.evaluation = api::EvaluationSpec{.batch_size = 2};
  const auto datasets = std::move(data::OpenDatasets(spec)).value();
  RoundConnector connector;
  RoundConnector alone;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    const auto evaluate = [&](const api::TrainingSpec& of, RoundConnector& round, int world,
                              const std::vector<double>& speeds, bool leaves) {
      Trainer trainer(of);
      const auto communicator = std::move(round.Enter(1, rank, world)).value();
      LOCKSTEP_CHECK(trainer.Sync(*communicator).ok() && trainer.RunRound(communicator, 2).ok());
      Evaluator evaluator(of, trainer.state(), *datasets.test);
      if (leaves) {
        const auto left = evaluator.Run(*communicator, speeds, [rank] { return rank == 1; }, {});
        LOCKSTEP_CHECK(left.ok() && !left->complete);
      }
      return evaluator.Run(*communicator, speeds, [] { return false; }, {});
    };
    const auto divided = evaluate(spec, connector, 3, {1, 6, 2}, true);
    REQUIRE(divided.ok() && divided->complete);
    if (rank > 0) return 0;
    api::TrainingSpec plain = spec;
    plain.strategy = api::Strategy::kDdp;
    const auto whole = evaluate(plain, alone, 1, {1}, false);
    REQUIRE(whole.ok());
    REQUIRE(std::abs(divided->loss - whole->loss) < 1e-4 && divided->accuracy == whole->accuracy);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(FsdpStepper, KeepsAPieceOfEachUnitBetweenSteps) {
  for (const auto& [copies, world] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 4}}) {
    api::TrainingSpec spec = Training(api::Strategy::kFsdp);
    spec.fsdp.copies = copies;
    RoundConnector connector;
    auto ranks = StartRanks(world, [&, copies = copies, world = world](int rank, LineChannel&) {
      at::set_num_threads(1);
      Trainer trainer(spec);
      auto communicator = connector.Enter(1, rank, world);
      REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
      REQUIRE(trainer.RunRound(*communicator, 2).ok());
      int64_t elements = 0;
      for (const NamedTensor& parameter : trainer.state().parameters) {
        elements += parameter.tensor.numel();
        REQUIRE(parameter.tensor.storage().nbytes() == 0);
        REQUIRE(!parameter.tensor.grad().defined());
      }
      // Parameter and two moments; each unit is cut at a multiple of 16.
      const auto units = static_cast<int64_t>(FsdpOf(trainer).layers().units());
      REQUIRE(FsdpOf(trainer).layers().held_bytes() <= 12 * copies * (elements / world + 17 * units));
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

TEST(FsdpStepper, LosesNothingWhereRanksLeaveAndJoin) {
  const api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  struct Membership {
    int world;
    int64_t until_step;
  };
  for (const std::vector<Membership>& rounds : {std::vector<Membership>{{4, 2}, {3, 3}, {1, 5}, {1, kSteps}},
                                                {{1, 1}, {2, 3}, {4, 5}, {2, kSteps}}}) {
    std::vector<RoundConnector> connectors(rounds.size());
    auto ranks = StartRanks(4, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      Trainer trainer(spec);
      for (std::size_t i = 0; i < rounds.size(); ++i) {
        const auto [world, until_step] = rounds[i];
        if (rank >= world) continue;
        auto communicator = connectors[i].Enter(static_cast<int64_t>(i), rank, world);
        REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
        REQUIRE(trainer.RunRound(*communicator, until_step).ok());
        if (i + 1 == rounds.size()) REQUIRE(IsAsWithDdp(spec, trainer, **communicator));
        if (i + 1 == rounds.size() || rounds[i + 1].world >= world) continue;
        std::vector<bool> stays(static_cast<std::size_t>(world), false);
        std::fill_n(stays.begin(), rounds[i + 1].world, true);
        REQUIRE(trainer.state().HandOver(**communicator, stays).ok());
      }
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

// Rank 2 of 3 dies after three steps, in a fourth one of the others. Those continue from where `restore` says, if they do not have all pieces, to the end.
void ExpectDdpAfterADeath(const api::TrainingSpec& spec, const Restore& restore, StateSource source,
                          int64_t from_step) {
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(3, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    auto communicator = first.Enter(1, rank, 3);
    REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, 3).ok());
    parent.Send("stepped");
    REQUIRE(parent.Receive(kPatience) == "killed");
    REQUIRE(trainer.RunRound(*communicator, 4).error().code == ErrorCode::kAborted);
    (*communicator)->Abort();
    communicator = second.Enter(2, rank, 2);
    REQUIRE(communicator.ok());
    const auto synced = trainer.Sync(**communicator, restore);
    REQUIRE(synced.ok() && *synced == source && trainer.state().step == from_step);
    REQUIRE(trainer.RunRound(*communicator, kSteps).ok());
    REQUIRE(IsAsWithDdp(spec, trainer, **communicator));
    return 0;
  });
  for (auto& rank : ranks) ASSERT_EQ(rank.channel().Receive(kPatience), "stepped");
  ranks[2].Signal(SIGKILL);
  EXPECT_EQ(ranks[2].Wait(kPatience), 128 + SIGKILL);
  for (const std::size_t survivor : {0U, 1U}) ranks[survivor].channel().Send("killed");
  for (const std::size_t survivor : {0U, 1U}) EXPECT_EQ(ranks[survivor].Wait(kPatience), 0);
}

TEST(FsdpStepper, StartsAgainWhereARankDiesWithItsPieces) {
  const auto afresh = [](TrainingState& state) -> Result<bool> {
    LOCKSTEP_TRY(state.StartAfresh());
    return false;
  };
  ExpectDdpAfterADeath(Training(api::Strategy::kFsdp), afresh, StateSource::kFresh, 0);
}

TEST(FsdpStepper, ContinuesFromCopiesWhereARankDies) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.fsdp.copies = 2;
  const auto restores = [](TrainingState&) -> Result<bool> {
    return Error{ErrorCode::kInternal, "nothing was lost"};
  };
  ExpectDdpAfterADeath(spec, restores, StateSource::kKept, 3);
}

// One rank makes the passes of a step and receives the last sum, the other one has given its part to that sum
// and does not learn its result.
TEST(FsdpStepper, MakesAStepThatOnlySomeRanksHaveFinished) {
  const api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  for (const bool first_finishes : {false, true}) {
    RoundConnector first;
    RoundConnector second;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      Trainer trainer(spec);
      auto communicator = first.Enter(1, rank, 2);
      REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
      REQUIRE(trainer.RunRound(*communicator, 3).ok());
      FsdpState& state = FsdpOf(trainer);
      REQUIRE(state.BeginStep().ok());
      const auto share = ShareOf(trainer.samples().plan().CountOf(3), rank, std::vector<double>{1, 1},
                                 MicroBatchPolicyOf(spec));
      const data::Batch batch = trainer.samples().Get({3, share.positions.begin, share.positions.end});
      at::Tensor sums;
      {
        LayerPass pass(state.layers(), **communicator);
        const at::AutoGradMode with_gradients(true);
        const auto outputs = pass.Forward(batch.inputs, true);
        REQUIRE(outputs.ok());
        const at::Tensor loss = state.model->LossSum(*outputs, batch.targets);
        REQUIRE(pass.Backward(loss).ok());
        sums = at::tensor({static_cast<double>(share.positions.size()), loss.item<double>(),
                           state.layers().SquaresOfGradients()},
                          at::kDouble);
      }
      state.layers().AwaitEnd(spec.optimizer.learning_rate);
      REQUIRE((*communicator)->SumInPlace(sums).ok());
      const double* const values = sums.const_data_ptr<double>();
      if (rank == 0 && first_finishes) {
        REQUIRE(state.EndStep({values[0], values[1], values[2]}).ok());
        state.Complete(4);
      }
      (*communicator)->Abort();
      communicator = second.Enter(2, rank, 2);
      REQUIRE(communicator.ok());
      const auto source = trainer.Sync(**communicator);
      REQUIRE(source.ok() && *source == StateSource::kKept);
      REQUIRE(trainer.state().step == (first_finishes ? 4 : 3));
      REQUIRE(trainer.RunRound(*communicator, kSteps).ok());
      REQUIRE(IsAsWithDdp(spec, trainer, **communicator));
      return 0;
    });
    SCOPED_TRACE(first_finishes ? "rank 0 has it" : "nobody has it");
    ExpectAllSucceed(ranks);
  }
}

}  // namespace
}  // namespace lockstep::train

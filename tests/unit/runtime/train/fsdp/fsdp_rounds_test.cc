// Strategy fsdp over several rounds: ranks that leave, join and die, also in the middle of a step.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/train/fsdp/layer_pass.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/fsdp/as_with_ddp.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using namespace as_with_ddp;
using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

void ExpectNothingLost(const api::TrainingSpec& spec) {
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
        auto communicator = EnterRound(connectors[i], static_cast<int64_t>(i), rank, world, trainer);
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

TEST(FsdpRounds, LosesNothingWhereRanksLeaveAndJoin) { ExpectNothingLost(Training(api::Strategy::kFsdp)); }

TEST(FsdpRounds, LosesNothingWhereTheNumberOfGroupsChanges) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.fsdp.sharding_group = 2;
  ExpectNothingLost(spec);
}

// The last ranks die after three steps, in a fourth one of the two others. Those continue from where `restore`
// says, if they do not have all pieces.
void ExpectDdpAfterDeaths(const api::TrainingSpec& spec, int deaths, const Restore& restore,
                          StateSource source, int64_t from_step) {
  constexpr std::size_t kSurvivors = 2;
  const int world = static_cast<int>(kSurvivors) + deaths;
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    auto communicator = EnterRound(first, 1, rank, world, trainer);
    REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, 3).ok());
    parent.Send("stepped");
    REQUIRE(parent.Receive(kPatience) == "killed");
    REQUIRE(trainer.RunRound(*communicator, 4).error().code == ErrorCode::kAborted);
    (*communicator)->Abort();
    communicator = EnterRound(second, 2, rank, kSurvivors, trainer);
    REQUIRE(communicator.ok());
    const auto synced = trainer.Sync(**communicator, restore);
    REQUIRE(synced.ok() && *synced == source && trainer.state().step == from_step);
    REQUIRE(trainer.RunRound(*communicator, kSteps).ok());
    REQUIRE(IsAsWithDdp(spec, trainer, **communicator));
    return 0;
  });
  for (auto& rank : ranks) ASSERT_EQ(rank.channel().Receive(kPatience), "stepped");
  for (std::size_t dead = kSurvivors; dead < ranks.size(); ++dead) ranks[dead].Signal(SIGKILL);
  for (std::size_t dead = kSurvivors; dead < ranks.size(); ++dead)
    EXPECT_EQ(ranks[dead].Wait(kPatience), 128 + SIGKILL);
  for (std::size_t survivor = 0; survivor < kSurvivors; ++survivor) ranks[survivor].channel().Send("killed");
  for (std::size_t survivor = 0; survivor < kSurvivors; ++survivor)
    EXPECT_EQ(ranks[survivor].Wait(kPatience), 0);
}

constexpr auto kMustNotRestore = [](TrainingState&) -> Result<bool> {
  return Error{ErrorCode::kInternal, "nothing was lost"};
};

TEST(FsdpRounds, StartsAgainWhereARankDiesWithItsPieces) {
  const auto afresh = [](TrainingState& state) -> Result<bool> {
    LOCKSTEP_TRY(state.StartAfresh());
    return false;
  };
  ExpectDdpAfterDeaths(Training(api::Strategy::kFsdp), 1, afresh, StateSource::kFresh, 0);
}

TEST(FsdpRounds, ContinuesFromCopiesWhereRanksDie) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  for (const int deaths : {1, 2}) {
    SCOPED_TRACE(deaths);
    spec.fsdp.copies = deaths + 1;
    ExpectDdpAfterDeaths(spec, deaths, kMustNotRestore, StateSource::kKept, 3);
  }
}

TEST(FsdpRounds, ContinuesFromTheOtherGroupWhereOneDies) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.fsdp.sharding_group = 2;
  ExpectDdpAfterDeaths(spec, 2, kMustNotRestore, StateSource::kKept, 3);
}

// The backward pass has computed gradients that it does not come to sum.
TEST(FsdpRounds, ForgetsTheGradientsOfABrokenPass) {
  const api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    auto communicator = EnterRound(first, 1, rank, 2, trainer);
    REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, 3).ok());
    FsdpState& state = FsdpOf(trainer);
    REQUIRE(state.BeginStep().ok());
    {
      const data::Batch batch = trainer.samples().Get({3, 0, 4});
      LayerPass pass(state.layers(), **communicator);
      const at::AutoGradMode with_gradients(true);
      const auto outputs = pass.Forward(batch.inputs, true);
      REQUIRE(outputs.ok());
      const at::Tensor loss = state.model->LossSum(*outputs, batch.targets);
      const at::Tensor& last = state.parameters.back().tensor;
      last.register_hook([broken = *communicator](const at::Tensor&) { broken->Abort(); });
      REQUIRE(pass.Backward(loss).error().code == ErrorCode::kAborted);
    }
    REQUIRE(state.UndoStep().ok());
    const auto has_gradient = [](const NamedTensor& named) { return named.tensor.grad().defined(); };
    REQUIRE(std::any_of(state.parameters.begin(), state.parameters.end(), has_gradient));
    communicator = EnterRound(second, 2, rank, 2, trainer);
    REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, kSteps).ok());
    REQUIRE(IsAsWithDdp(spec, trainer, **communicator));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// All ranks make the passes of a step and give their part to its last sum. At most rank 0 learns the result.
// `deaths` others die with their pieces then.
void ExpectTheInterruptedStep(const api::TrainingSpec& spec, int deaths, bool first_finishes) {
  const int survivors = 2;
  const int world = survivors + deaths;
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(world, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    auto communicator = EnterRound(first, 1, rank, world, trainer);
    REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, 3).ok());
    FsdpState& state = FsdpOf(trainer);
    REQUIRE(state.BeginStep().ok());
    const auto share =
        ShareOf(trainer.samples().plan().CountOf(3), rank,
                std::vector<double>(static_cast<std::size_t>(world), 1), MicroBatchPolicyOf(spec));
    const data::Batch batch = trainer.samples().Get({3, share.positions.begin, share.positions.end});
    at::Tensor sums;
    {
      LayerPass pass(state.layers(), **communicator);
      const at::AutoGradMode with_gradients(true);
      const auto outputs = pass.Forward(batch.inputs, true);
      REQUIRE(outputs.ok());
      const at::Tensor loss = state.model->LossSum(*outputs, batch.targets);
      REQUIRE(pass.Backward(loss).ok());
      sums = at::tensor({static_cast<double>(share.positions.size()), loss.item<double>(), 0.0}, at::kDouble);
    }
    REQUIRE(state.layers().SumOverGroups(**communicator).ok());
    if (rank < (*communicator)->subgroup().world()) sums[2] = state.layers().SquaresOfGradients();
    REQUIRE(state.layers().ShareGradients(**communicator).ok());
    state.layers().AwaitEnd(spec.optimizer.learning_rate);
    REQUIRE((*communicator)->SumInPlace(sums).ok());
    const double* const values = sums.const_data_ptr<double>();
    if (rank == 0 && first_finishes) {
      REQUIRE(state.EndStep({values[0], values[1], values[2]}).ok());
      state.Complete(4);
    }
    (*communicator)->Abort();
    if (rank >= survivors) return 0;
    communicator = EnterRound(second, 2, rank, survivors, trainer);
    REQUIRE(communicator.ok());
    const auto source = trainer.Sync(**communicator);
    REQUIRE(source.ok() && *source == StateSource::kKept);
    REQUIRE(trainer.state().step == (first_finishes ? 4 : 3));
    REQUIRE(trainer.RunRound(*communicator, kSteps).ok());
    REQUIRE(IsAsWithDdp(spec, trainer, **communicator));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(FsdpRounds, MakesAStepThatOnlySomeRanksHaveFinished) {
  struct Case {
    std::string name;
    int deaths;
    api::FsdpSpec fsdp{};
  };
  const std::vector<Case> cases = {
      {"one copy", 0}, {"two copies", 1, {.copies = 2}}, {"two groups", 2, {.sharding_group = 2}}};
  for (const Case& of : cases) {
    for (const bool first_finishes : {false, true}) {
      SCOPED_TRACE(of.name + ", " + (first_finishes ? "rank 0 has it" : "nobody has it"));
      api::TrainingSpec spec = Training(api::Strategy::kFsdp);
      spec.fsdp = of.fsdp;
      ExpectTheInterruptedStep(spec, of.deaths, first_finishes);
    }
  }
}

}  // namespace
}  // namespace lockstep::train

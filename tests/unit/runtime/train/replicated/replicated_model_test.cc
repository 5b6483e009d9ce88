#include "runtime/train/replicated/replicated_model.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <functional>

#include "runtime/train/state/broadcast.h"
#include "tests/support/filled_state.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/state_of.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::Fill;
using testing::IsFilledWith;
using testing::LineChannel;
using testing::ReplicatedOf;
using testing::RoundConnector;
using testing::StartRanks;

std::unique_ptr<TrainingState> NewState(int64_t seed = 1) {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {50};
  spec.seed = seed;
  return std::move(MakeTrainingState(spec, {{1, 8, 8}, 10})).value();
}

// Larger than two chunks.
std::unique_ptr<TrainingState> NewLargeState() {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {2500, 2500};
  return std::move(MakeTrainingState(spec, {{1, 8, 8}, 10})).value();
}

Result<bool> MustNotRestore(TrainingState&) { return Error{ErrorCode::kInternal, "not expected"}; }

TEST(ReplicatedModel, KeepsWhatAllHold) {
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    const auto owned = NewState();
    TrainingState& state = *owned;
    Fill(state, 40, 7);
    if (rank == 2) state.evaluations = {.step = 40, .newest = 0.5, .best = 0.75, .without_improvement = 2};
    const auto source = state.Sync(**communicator, MustNotRestore);
    REQUIRE(source.ok());
    REQUIRE(*source == StateSource::kKept);
    REQUIRE(state.step == 40 && IsFilledWith(state, 7));
    REQUIRE(state.evaluations.step == 40 && state.evaluations.newest == 0.5);
    REQUIRE(state.evaluations.best == 0.75 && state.evaluations.without_improvement == 2);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(ReplicatedModel, KnowsOfTheEvaluationsThatTheCheckpointKnowsOf) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const auto owned = NewState();
    TrainingState& state = *owned;
    if (rank == 1) state.evaluations = {.step = 100, .newest = 0.5};  // from a state that was lost in part
    const auto source = state.Sync(**communicator, [](TrainingState& restored) {
      restored.evaluations = {.step = 50, .newest = 0.75};
      Fill(restored, 100, 7);
      return Result<bool>(true);
    });
    REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
    REQUIRE(state.step == 100);
    REQUIRE(state.evaluations.step == 50 && state.evaluations.newest == 0.75);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(ReplicatedModel, TakesTheHighestStepWhicheverRankHoldsIt) {
  RoundConnector connector;
  auto ranks = StartRanks(4, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 4);
    REQUIRE(communicator.ok());
    const auto owned = NewState(rank);
    TrainingState& state = *owned;  // the initial values of a new rank must not survive
    if (rank == 1) Fill(state, 40, 7);
    if (rank == 2) Fill(state, 41, 8);  // one step ahead
    if (rank == 3) Fill(state, 40, 7);
    const auto source = state.Sync(**communicator, MustNotRestore);
    REQUIRE(source.ok());
    REQUIRE(*source == (rank == 2 ? StateSource::kKept : StateSource::kPeer));
    REQUIRE(state.step == 41 && IsFilledWith(state, 8));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(ReplicatedModel, GivesANewcomerTheScaleOfTheLoss) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const auto owned = NewState();
    TrainingState& state = *owned;
    state.loss_scale = LossScale(api::Precision::kFp16);
    if (rank == 1) {
      state.step = 40;
      state.loss_scale.StepDone(false);
    }
    const double newcomers = LossScale(api::Precision::kFp16).factor();
    REQUIRE(state.Sync(**communicator, MustNotRestore).ok());
    REQUIRE(state.loss_scale.factor() == newcomers / 2);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(ReplicatedModel, MakesStatesEqualThatDriftedApartAtOneStep) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const auto owned = NewState();
    TrainingState& state = *owned;
    Fill(state, 5, 7);
    const at::NoGradGuard no_grad;
    if (rank == 1) state.Tensors().back().tensor[0] = 1e-30;
    REQUIRE(state.Sync(**communicator, MustNotRestore).ok());
    REQUIRE(IsFilledWith(state, 7));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(ReplicatedModel, StartsAfreshWithEqualNumbersWhereNothingIsStored) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const auto owned = NewState();
    TrainingState& state = *owned;
    const auto source = state.Sync(**communicator, [](TrainingState&) -> Result<bool> { return false; });
    REQUIRE(source.ok());
    REQUIRE(*source == StateSource::kFresh);
    REQUIRE(state.step == 0 && ReplicatedOf(state).Digest() == ReplicatedOf(*NewState()).Digest());
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(ReplicatedModel, GoesOnFromWhatAllRestored) {
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    const auto owned = NewState();
    TrainingState& state = *owned;
    const auto source = state.Sync(**communicator, [&](TrainingState& target) -> Result<bool> {
      Fill(target, 120, 3);
      return true;
    });
    REQUIRE(source.ok());
    REQUIRE(*source == StateSource::kCheckpoint);
    REQUIRE(state.step == 120 && IsFilledWith(state, 3));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Acts as a source, rank 1, that dies after it has sent its first chunk. Its host has the number 0.
int DieHalfWay(comm::Communicator& communicator, TrainingState& state) {
  Fill(state, 41, 8);
  const std::vector<int64_t> standing = {state.step, ReplicatedOf(state).Digest(), 0, -1, 0, 0, 0};
  REQUIRE(communicator.AllGather(standing).ok());
  REQUIRE(communicator.Broadcast({at::full({kBroadcastChunkBytes / 4}, 8.0)}, 1).ok());
  return ::raise(SIGKILL);
}

// Rank 0 synchronises with a source that dies half-way; then the test checks what it holds.
void SyncWithADyingSource(const std::function<void(TrainingState&)>& prepare,
                          const std::function<bool(const TrainingState&)>& is_right) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const auto owned = NewLargeState();
    TrainingState& state = *owned;
    if (rank == 1) return DieHalfWay(**communicator, state);
    prepare(state);
    const auto source = state.Sync(**communicator, MustNotRestore);
    REQUIRE(!source.ok());
    REQUIRE(source.error().code == ErrorCode::kAborted);
    REQUIRE(is_right(state));
    return 0;
  });
  EXPECT_EQ(ranks[0].Wait(testing::kPatience), 0);
  EXPECT_EQ(ranks[1].Wait(testing::kPatience), 128 + SIGKILL) << "it has sent a chunk";
}

// A source that dies half-way must not cost the other ranks their state.
TEST(ReplicatedModel, LeavesTheOwnStateAloneWhereTheSourceDies) {
  SyncWithADyingSource([](TrainingState& state) { Fill(state, 40, 7); },
                       [](const TrainingState& state) {
                         return state.step == 40 && !state.is_torn && IsFilledWith(state, 7);
                       });
}

// It then holds neither the source's state nor a fresh one.
TEST(ReplicatedModel, LeavesANewcomerWithoutAStepWhereTheSourceDies) {
  int64_t as_made = 0;  // in the process of the rank
  SyncWithADyingSource([&](TrainingState& state) { as_made = ReplicatedOf(state).Digest(); },
                       [&](const TrainingState& state) {
                         const bool is_a_mixture =
                             ReplicatedOf(state).Digest() != as_made && !IsFilledWith(state, 8);
                         return is_a_mixture && state.step == -1 && state.is_torn;
                       });
}

// Its own state is not kept if it is not needed, because that takes as much memory again.
TEST(ReplicatedModel, WritesIntoALaggardWhereTwoHostsHoldTheBestState) {
  RoundConnector connector;
  RoundConnector after;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    auto communicator = connector.EnterOnHost(rank + 1, 1, rank, 3);
    REQUIRE(communicator.ok());
    const auto owned = NewLargeState();
    TrainingState& state = *owned;
    if (rank == 1) return DieHalfWay(**communicator, state);
    const bool is_behind = rank == 0;
    Fill(state, is_behind ? 40 : 41, is_behind ? 7 : 8);
    REQUIRE(!state.Sync(**communicator, MustNotRestore).ok());
    (*communicator)->Abort();
    REQUIRE(state.is_torn == is_behind && state.step == (is_behind ? -1 : 41));
    auto next = after.EnterOnHost(rank + 1, 2, is_behind ? 0 : 1, 2);
    REQUIRE(next.ok());
    const auto source = state.Sync(**next, MustNotRestore);
    REQUIRE(source.ok() && *source == (is_behind ? StateSource::kPeer : StateSource::kKept));
    REQUIRE(state.step == 41 && !state.is_torn && IsFilledWith(state, 8));
    return 0;
  });
  EXPECT_EQ(ranks[0].Wait(testing::kPatience), 0);
  EXPECT_EQ(ranks[1].Wait(testing::kPatience), 128 + SIGKILL) << "it has sent a chunk";
  EXPECT_EQ(ranks[2].Wait(testing::kPatience), 0);
}

TEST(ReplicatedModel, MakesATornRankWholeFromAPeer) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const auto owned = NewState();
    TrainingState& state = *owned;
    Fill(state, 40, rank == 0 ? 6 : 7);
    if (rank == 0) state.Tear();
    const auto source = state.Sync(**communicator, MustNotRestore);
    REQUIRE(source.ok() && *source == (rank == 0 ? StateSource::kPeer : StateSource::kKept));
    REQUIRE(state.step == 40 && !state.is_torn && IsFilledWith(state, 7));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train

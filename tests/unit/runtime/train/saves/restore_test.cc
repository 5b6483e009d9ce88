#include "runtime/train/saves/restore.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/support/forked_ranks.h"
#include "tests/support/state_of.h"
#include "tests/unit/runtime/train/saves/restore_fixture.h"

namespace lockstep::train {
namespace {

using namespace restore_fixture;
using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

struct Case {
  api::Strategy strategy;
  int world;
  double most;  // of all bytes, that any rank reads
};

class Restored : public RestoreTest, public ::testing::WithParamInterface<Case> {};

TEST_P(Restored, ByRanksOfWhichEachReadsItsPart) {
  const auto& [strategy, world, most] = GetParam();
  RoundConnector connector;
  auto ranks = StartRanks(world, [&, strategy = strategy, world = world](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    if (rank == 0) Save(120);
    auto communicator = connector.Enter(1, rank, world);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(strategy), kInput)).value();
    TrainingState& state = *owned;
    const auto source = SyncFrom(place, **communicator, state);
    REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
    REQUIRE(state.step == 120);
    REQUIRE(HoldsWhatWasStored(**communicator, state, 120));
    parent.Send(std::to_string(place.store->bytes_read));
    return 0;
  });
  double sum = 0;
  std::vector<double> read;
  for (auto& rank : ranks)
    sum += read.emplace_back(std::stod(rank.channel().Receive(kPatience).value_or("-1")));
  ExpectAllSucceed(ranks);
  const auto all = static_cast<double>(BytesOf(120));
  for (std::size_t rank = 0; rank < read.size(); ++rank) EXPECT_LE(read[rank], most * all) << "rank " << rank;
  EXPECT_GE(sum, 0.99 * all);
  EXPECT_LE(sum, 1.4 * all) << "each byte once, but for the blocks that two ranks need";
}

INSTANTIATE_TEST_SUITE_P(
    All, Restored,
    ::testing::Values(Case{api::Strategy::kDdp, 1, 1.01}, Case{api::Strategy::kDdp, 3, 0.4},
                      Case{api::Strategy::kZero1, 1, 1.01}, Case{api::Strategy::kZero1, 3, 0.5},
                      Case{api::Strategy::kFsdp, 1, 1.01}, Case{api::Strategy::kFsdp, 3, 0.5},
                      Case{api::Strategy::kPipeline, 3, 0.5}, Case{api::Strategy::kHybrid, 4, 0.5}),
    [](const auto& test) {
      return std::string(api::NameOf(test.param.strategy)) + "Of" + std::to_string(test.param.world);
    });

// Corrupts the last bytes of the largest tensor, which only one rank reads.
TEST_F(RestoreTest, PassesOverWhatOneRankFindsDamaged) {
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    if (rank == 0) {
      Save(110);
      Save(120);
      const std::string shard =
          folder_ + "/" + checkpoint::FolderOfStep(120) + "/" + checkpoint::ShardName(1, {"uid-1", 3, 1});
      std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end).put('!');
      REQUIRE(file.good());
    }
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kZero1), kInput)).value();
    TrainingState& state = *owned;
    const auto source = SyncFrom(place, **communicator, state);
    REQUIRE(source.ok() && state.step == 110);
    REQUIRE(HoldsWhatWasStored(**communicator, state, 110));
    const std::vector<protocol::CheckpointDamaged> damaged = place.checkpointer->TakeDamaged();
    REQUIRE(damaged.size() == (rank == 0 ? 1U : 0U));
    for (const auto& entry : damaged) REQUIRE(entry.reason.starts_with("file://"));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST_F(RestoreTest, HoldsNoStepWhereARankDoesNotReachTheStoreAndSucceedsInTheSameRoundOnceItDoes) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    if (rank == 0) Save(120);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kDdp), kInput)).value();
    TrainingState& state = *owned;
    for (const int without_store : {1, 0}) {
      place.store->is_away = rank == without_store;
      const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
      REQUIRE(!restored.ok() && restored.error().code == ErrorCode::kUnavailable);
      REQUIRE(restored.error().message.find("the store is away") != std::string::npos);
      REQUIRE(state.step == -1);
    }
    place.store->is_away = false;
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
    REQUIRE(restored.ok() && *restored && state.step == 120 && !state.is_torn);
    REQUIRE(HoldsWhatWasStored(**communicator, state, 120));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST_F(RestoreTest, LeavesWhatARankHoldsAloneUntilAllHaveReadTheirPart) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    if (rank == 0) Save(120);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kZero1), kInput)).value();
    TrainingState& state = *owned;
    state.step = 130;  // of which moments were lost
    const int64_t before = testing::ReplicatedOf(state).Digest();
    place.store->is_away = rank == 1;
    REQUIRE(!RestoreTogether(**communicator, *place.checkpointer, state).ok());
    REQUIRE(state.step == 130 && !state.is_torn && testing::ReplicatedOf(state).Digest() == before);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST_F(RestoreTest, IsFalseOnEveryRankWhereNothingIsStored) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kDdp, 8), kInput)).value();
    TrainingState& state = *owned;
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
    REQUIRE(restored.ok() && !*restored);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train

// Ranks come and go: each stage moves, comes from a copy or a replica, or is made again.
#include <gtest/gtest.h>

#include <algorithm>
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

}  // namespace
}  // namespace lockstep::train

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"
#include "tests/unit/runtime/train/used_samples.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

api::TrainingSpec Async(int64_t staleness) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.strategy = api::Strategy::kAsync;
  spec.sync.staleness = staleness;
  return spec;
}

TEST(Async, ARankAloneTakesStepByStep) {
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    api::TrainingSpec spec = Async(3);
    spec.micro_batch_size = 5;
    spec.schedule = {.name = api::ScheduleName::kCosine, .warmup_steps = 2};
    api::TrainingSpec local = spec;
    local.strategy = api::Strategy::kLocalsgd;
    local.sync.every_steps = 3;
    Trainer claims(spec);
    Trainer shares(local);
    auto of_claims = first.Enter(1, 0, 1);
    REQUIRE(of_claims.ok() && claims.RunRound(*of_claims, Trainer::kTotalSteps).ok());
    auto of_shares = second.Enter(2, 0, 1);
    REQUIRE(of_shares.ok() && shares.RunRound(*of_shares, Trainer::kTotalSteps).ok());
    REQUIRE(claims.StateBytes() == shares.StateBytes());
    REQUIRE(claims.last().learning_rate == shares.last().learning_rate);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Adam, dropout, clipping, micro-batches, an outer step, more ranks than samples in a short step.
TEST(Async, LeavesTheSameBitsOnAllRanksAndUsesEachSampleOnce) {
  api::TrainingSpec spec = Async(3);
  spec.micro_batch_size = 2;
  spec.sync.outer = api::OuterSpec{};
  const LedgerFolder folder;
  RoundConnector connector;
  auto ranks = StartRanks(7, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.ledger_folder = folder.path()});
    auto communicator = connector.Enter(1, rank, 7);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 6).ok());
    REQUIRE(trainer.state().step == 6 && trainer.last().steps == 3);
    REQUIRE(trainer.last().all.count == 22 + 22 + 6 && std::isfinite(trainer.last().loss));
    parent.Send(trainer.Bits());
    return 0;
  });
  std::set<std::string> bits;
  for (auto& rank : ranks) bits.insert(rank.channel().Receive(kPatience).value_or("nothing"));
  EXPECT_EQ(bits.size(), 1U);
  EXPECT_FALSE(bits.contains("nothing"));
  ExpectAllSucceed(ranks);
  ExpectEachSampleOnce(Used(folder.path()), PlanOf(spec), 6);
}

// It stops with its first batch until the other rank has no more to do.
TEST(Async, TheOthersTakeWhatARankThatStandsStillDoesNot) {
  for (const int still : {0, 1}) {
    const api::TrainingSpec spec = Async(Trainer::kTotalSteps);
    RoundConnector connector;
    auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
      at::set_num_threads(1);
      TrainerOptions options;
      if (rank == still) {
        options.taken = [&](int64_t taken) {
          if (taken == 0) LOCKSTEP_CHECK(parent.Receive(kPatience) == "go on", "nobody said so");
        };
      } else {
        options.waits = [&] { parent.Send("no more to do"); };
      }
      Trainer trainer(spec, std::move(options));
      auto communicator = connector.Enter(1, rank, 2);
      REQUIRE(communicator.ok() && trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
      // The batch in progress and the prefetched one, of 11 samples each.
      const int64_t all = 22 + 22 + 6 + 22 + 22 + 6 + 22;
      REQUIRE(trainer.last().all.count == all);
      REQUIRE(rank == still ? trainer.last().local_count <= 22 : trainer.last().local_count >= all - 22);
      parent.Send(trainer.Bits());
      return 0;
    });
    auto& other = ranks[static_cast<std::size_t>(1 - still)].channel();
    auto& waiting = ranks[static_cast<std::size_t>(still)].channel();
    EXPECT_EQ(other.Receive(kPatience), "no more to do");
    waiting.Send("go on");
    EXPECT_EQ(other.Receive(kPatience), waiting.Receive(kPatience));
    ExpectAllSucceed(ranks);
  }
}

TEST(Async, GoesBackAtOnceWhereTheRoundEndsInsideAWindow) {
  const api::TrainingSpec spec = Async(4);
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    std::stop_source round_over;
    Trainer trainer(spec, {.taken = [&](int64_t steps) {
                      if (steps == 2) round_over.request_stop();
                    }});
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    const std::string before = trainer.StateBytes();
    const auto strategy = MakeStrategy(spec, *communicator, trainer.replicated());
    const Result<void> left = trainer.RunRoundWith(**strategy, **communicator, 4, round_over.get_token());
    REQUIRE(!left.ok() && left.error().code == ErrorCode::kCancelled);
    REQUIRE(trainer.state().step == 0 && trainer.StateBytes() == before);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Rank 1 dies with a claimed batch of the second window; rank 0 repeats that window alone.
TEST(Async, UsesEachSampleOnceWhereARankDiesInsideAWindow) {
  const api::TrainingSpec spec = Async(3);
  const LedgerFolder folder;
  RoundConnector both;
  RoundConnector alone;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    bool is_second_window = false;
    Trainer trainer(spec, {.ledger_folder = folder.path(),
                           .taken =
                               [&](int64_t) {
                                 if (rank == 1 && is_second_window) ::raise(SIGKILL);
                               },
                           .waits =
                               [&] {
                                 if (rank == 1 && is_second_window) ::raise(SIGKILL);
                               }});
    auto communicator = both.Enter(1, rank, 2);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 3).ok());
    is_second_window = true;
    const std::string before = trainer.StateBytes();
    const Result<void> broken = trainer.RunRound(*communicator, 6);
    REQUIRE(!broken.ok() && broken.error().code == ErrorCode::kAborted);
    REQUIRE(trainer.state().step == 3 && trainer.StateBytes() == before);
    auto after = alone.Enter(2, 0, 1);
    REQUIRE(after.ok() && trainer.RunRound(*after, 6).ok());
    return 0;
  });
  EXPECT_EQ(ranks[0].Wait(kPatience), 0);
  EXPECT_EQ(ranks[1].Wait(kPatience), 128 + SIGKILL);
  ExpectEachSampleOnce(Used(folder.path()), PlanOf(spec), 6);
}

TEST(Async, NamesTheStepThatIsNotFinite) {
  const api::TrainingSpec spec = Async(3);
  const std::vector<int64_t> non_finite = PlanOf(spec).Ids(1, 12, 13);
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.non_finite = non_finite});
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 3).ok());
    REQUIRE(trainer.last().applied && std::isfinite(trainer.last().loss));
    parent.Send(std::to_string(trainer.last().skipped));
    return 0;
  });
  EXPECT_EQ(ranks[0].channel().Receive(kPatience) == "1", ranks[1].channel().Receive(kPatience) == "0")
      << "one rank met it, whichever claimed it";
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train

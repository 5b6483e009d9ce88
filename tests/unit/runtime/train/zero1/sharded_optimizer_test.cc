#include "runtime/train/zero1/sharded_optimizer.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using api::OptimizerName;
using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

api::TrainingSpec Sharded(api::TrainingSpec spec, int copies = 1) {
  spec.strategy = api::Strategy::kZero1;
  spec.zero1.copies = copies;
  return spec;
}

// The number of ranks, up to a step. Ranks that the next round does not have hand over their parts;
// additional ranks are new.
struct Membership {
  int world;
  int64_t until_step;
};

std::string WeightsAfter(const api::TrainingSpec& spec, const std::vector<Membership>& rounds,
                         const TrainerOptions& options = {}) {
  std::vector<RoundConnector> connectors(rounds.size());
  int most = 0;
  for (const Membership& round : rounds) most = std::max(most, round.world);
  auto ranks = StartRanks(most, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, options);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (rank >= rounds[i].world) continue;
      auto communicator = connectors[i].Enter(static_cast<int64_t>(i), rank, rounds[i].world);
      REQUIRE(communicator.ok());
      REQUIRE(trainer.Sync(**communicator).ok());
      REQUIRE(trainer.RunRound(*communicator, rounds[i].until_step).ok());
      const bool some_leave = i + 1 < rounds.size() && rounds[i + 1].world < rounds[i].world;
      if (!some_leave || !trainer.state().is_divided()) continue;
      std::vector<bool> stays(static_cast<std::size_t>(rounds[i].world), false);
      std::fill_n(stays.begin(), rounds[i + 1].world, true);
      REQUIRE(trainer.state().HandOver(**communicator, stays).ok());
    }
    parent.Send(std::to_string(std::hash<std::string>{}(trainer.WeightBytes())));
    return 0;
  });
  std::string common;
  for (int rank = 0; rank < most; ++rank) {
    const std::string mine =
        ranks[static_cast<std::size_t>(rank)].channel().Receive(kPatience).value_or("nothing");
    if (rank >= rounds.back().world) continue;
    EXPECT_TRUE(common.empty() || mine == common) << "rank " << rank;
    common = mine;
  }
  ExpectAllSucceed(ranks);
  return common;
}

std::vector<api::OptimizerSpec> AllOptimizers() {
  return {{.name = OptimizerName::kSgd, .learning_rate = 0.1},
          {.name = OptimizerName::kSgd,
           .learning_rate = 0.1,
           .momentum = 0.9,
           .nesterov = true,
           .weight_decay = 0.01},
          {.name = OptimizerName::kAdam, .learning_rate = 0.01, .weight_decay = 0.1},
          {.name = OptimizerName::kAdamw, .learning_rate = 0.01, .weight_decay = 0.1, .clip_norm = 0.5},
          {.name = OptimizerName::kLamb, .learning_rate = 0.01, .weight_decay = 0.1},
          {.name = OptimizerName::kMuon, .learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.1}};
}

TEST(ShardedOptimizer, GivesTheBitsOfAReplicatedOne) {
  for (const api::OptimizerSpec& optimizer : AllOptimizers()) {
    api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
    spec.optimizer = optimizer;
    spec.micro_batch_size = 3;  // of shares of 7 and 8 samples
    for (const int world : {1, 2, 3, 4}) {
      const std::string replicated = WeightsAfter(spec, {{world, Trainer::kTotalSteps}});
      ASSERT_NE(replicated, "nothing");
      for (const int copies : {1, 2})
        EXPECT_EQ(WeightsAfter(Sharded(spec, copies), {{world, Trainer::kTotalSteps}}), replicated)
            << world << " ranks, " << copies << " copies, " << api::NameOf(optimizer.name);
    }
  }
}

TEST(ShardedOptimizer, GivesTheBitsOfAReplicatedOneInEachPrecisionAndWithUnevenShares) {
  const api::TrainingSpec plain = SmallTraining(api::Determinism::kNone);
  api::TrainingSpec half = plain;
  half.precision = api::Precision::kBf16;
  api::TrainingSpec scaled = plain;
  scaled.precision = api::Precision::kFp16;
  const std::vector<int64_t> non_finite = PlanOf(plain).Ids(1, 10, 11);  // the second step is skipped
  for (const api::TrainingSpec& spec : {plain, half, scaled}) {
    const TrainerOptions options{.non_finite = non_finite,
                                 .speeds = {1, 6, 2},
                                 .loss_scale = spec.precision == api::Precision::kFp16 ? 0x1p18 : 0};
    EXPECT_EQ(WeightsAfter(Sharded(spec), {{3, Trainer::kTotalSteps}}, options),
              WeightsAfter(spec, {{3, Trainer::kTotalSteps}}, options))
        << api::NameOf(spec.precision);
  }
}

// With `determinism: World` no bit depends on the world, so the comparison shows that nothing is lost.
TEST(ShardedOptimizer, LosesNothingWhereRanksLeaveAndJoin) {
  for (const OptimizerName name : {OptimizerName::kAdamw, OptimizerName::kLamb, OptimizerName::kMuon}) {
    SCOPED_TRACE(api::NameOf(name));
    api::TrainingSpec spec = SmallTraining(api::Determinism::kWorld);
    spec.optimizer.name = name;
    if (name == OptimizerName::kMuon) spec.optimizer.momentum = 0.95;
    const std::string alone = WeightsAfter(spec, {{1, Trainer::kTotalSteps}});
    for (const int copies : {1, 2}) {
      EXPECT_EQ(WeightsAfter(Sharded(spec, copies), {{4, 2}, {3, 3}, {1, 5}, {1, Trainer::kTotalSteps}}),
                alone);
      EXPECT_EQ(WeightsAfter(Sharded(spec, copies), {{1, 1}, {2, 3}, {4, 5}, {2, Trainer::kTotalSteps}}),
                alone);
    }
  }
}

TEST(ShardedOptimizer, KeepsOnEachRankItsPartAlone) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  const auto replicated = std::move(MakeTrainingState(spec, {spec.data.synthetic.shape, 3})).value();
  int64_t whole = 0;
  for (const NamedTensor& moment : testing::OptimizerOf(*replicated).state())
    whole += static_cast<int64_t>(moment.tensor.nbytes());
  for (const int copies : {1, 2}) {
    for (const int world : {2, 3, 4}) {
      RoundConnector connector;
      auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
        at::set_num_threads(1);
        auto communicator = connector.Enter(1, rank, world);
        REQUIRE(communicator.ok());
        Trainer trainer(Sharded(spec, copies));
        REQUIRE(trainer.Sync(**communicator).ok());
        REQUIRE(trainer.RunRound(*communicator, 3).ok());
        parent.Send(std::to_string(testing::ShardsOf(trainer.state()).held_bytes()));
        return 0;
      });
      int64_t sum = 0;
      for (auto& rank : ranks) {
        const int64_t bytes = std::stoll(rank.channel().Receive(kPatience).value_or("-1"));
        // Two moments; a cut is at most 16 elements of 4 bytes away from an even one.
        EXPECT_LE(bytes, copies * (whole / world + 2 * 16 * 4)) << world << " ranks";
        sum += bytes;
      }
      EXPECT_EQ(sum, copies * whole) << world << " ranks";
      ExpectAllSucceed(ranks);
    }
  }
}

// A rank's optimizer over two parameters, with gradients that are the same on all ranks.
class RankOptimizer {
 public:
  explicit RankOptimizer(bool sharded, int64_t size_of_a = 100) {
    torch::manual_seed(3);
    for (const auto& [name, size] : {std::pair("a", size_of_a), std::pair("b", int64_t{37})})
      parameters_.push_back({name, torch::randn({size}).requires_grad_(true)});
    const api::OptimizerSpec spec{.weight_decay = 0.1};
    if (sharded) {
      sharded_ = std::move(ShardedOptimizer::Make(spec, parameters_, {})).value();
    } else {
      replicated_ = MakeOptimizer(spec, parameters_);
    }
  }
  Result<void> Step(int64_t step, comm::Communicator* communicator = nullptr) {
    torch::manual_seed(1000 + static_cast<uint64_t>(step));
    for (NamedTensor& parameter : parameters_)
      parameter.tensor.mutable_grad() = torch::randn_like(parameter.tensor);
    if (sharded_ != nullptr) return sharded_->Step(*communicator, 0.1);
    replicated_->Step(step, 0.1);
    return {};
  }
  // As TrainingState::Sync does, with the parameters of a rank that has them.
  Result<Version> Sync(comm::Communicator& communicator, int source) {
    LOCKSTEP_TRY(const auto whole, sharded_->Agree(communicator));
    for (NamedTensor& parameter : parameters_)
      LOCKSTEP_TRY(communicator.Broadcast({parameter.tensor.detach()}, source));
    const Version version = whole.value_or(Version{0, communicator.place().round});
    LOCKSTEP_TRY(sharded_->Redistribute(communicator, version));
    return version;
  }
  bool HasWeightsOf(const RankOptimizer& other) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].tensor.equal(other.parameters_[i].tensor)) return false;
    }
    return true;
  }
  ShardedOptimizer& sharded() { return *sharded_; }

 private:
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<ShardedOptimizer> sharded_;
  std::unique_ptr<Optimizer> replicated_;
};

TEST(ShardedOptimizer, AStepOfSeveralChunksChangesNothingBeforeTheLastOneHasArrived) {
  constexpr int64_t kElementsOfAChunk = ShardedOptimizer::kGatherChunkBytes / 4;
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    RankOptimizer reference(false, kElementsOfAChunk + 1000);
    RankOptimizer rank_optimizer(true, kElementsOfAChunk + 1000);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    REQUIRE(rank_optimizer.Sync(**communicator, 0).ok());
    REQUIRE(rank_optimizer.Step(0, communicator->get()).ok() && reference.Step(0).ok());
    REQUIRE(rank_optimizer.HasWeightsOf(reference));
    if (rank == 1) {  // dies after it has sent its first chunk
      at::Tensor mine = at::zeros({kElementsOfAChunk / 2});
      at::Tensor all = at::empty({kElementsOfAChunk});
      REQUIRE((*communicator)->AllGatherInto(all, mine).ok());
      (*communicator)->Abort();
      return 0;
    }
    REQUIRE(rank_optimizer.Step(1, communicator->get()).error().code == ErrorCode::kAborted);
    REQUIRE(rank_optimizer.HasWeightsOf(reference));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

constexpr int64_t kStepsBefore = 3;

// What happens in the fourth step of two ranks before their round breaks. Each rank has two optimizers in two
// rounds with the same number: one completes the step, the other one is interrupted, and the test chooses
// which of the two continues.
using Fourth = std::function<Result<void>(RankOptimizer& rank_optimizer, comm::Communicator& communicator)>;

int ContinuesAfter(RoundConnector& whole, RoundConnector& broken, RoundConnector& next, int rank,
                   bool is_ahead, const Fourth& fourth, int source, int64_t expected_step) {
  RankOptimizer reference(false);
  RankOptimizer made(true);
  RankOptimizer cut(true);
  auto of_made = whole.Enter(1, rank, 2);
  auto of_cut = broken.Enter(1, rank, 2);
  REQUIRE(of_made.ok() && of_cut.ok());
  REQUIRE(made.Sync(**of_made, 0).ok() && cut.Sync(**of_cut, 0).ok());
  for (int64_t step = 0; step < kStepsBefore; ++step) {
    REQUIRE(made.Step(step, of_made->get()).ok() && cut.Step(step, of_cut->get()).ok());
    REQUIRE(reference.Step(step).ok());
  }
  REQUIRE(made.HasWeightsOf(reference) && cut.HasWeightsOf(reference));
  REQUIRE(fourth(made, **of_made).ok());
  (*of_cut)->Abort();
  if (!is_ahead) {
    REQUIRE(cut.Step(kStepsBefore, of_cut->get()).error().code == ErrorCode::kAborted);
    REQUIRE(cut.HasWeightsOf(reference));  // the step has no visible effect
  }
  RankOptimizer& mine = is_ahead ? made : cut;
  auto of_next = next.Enter(2, rank, 2);
  REQUIRE(of_next.ok());
  const auto version = mine.Sync(**of_next, source);
  REQUIRE(version.ok());
  REQUIRE(version->step == expected_step);
  if (expected_step > kStepsBefore) REQUIRE(reference.Step(kStepsBefore).ok());
  for (int64_t step = expected_step; step < 6; ++step) {
    REQUIRE(mine.Step(step, of_next->get()).ok());
    REQUIRE(reference.Step(step).ok());
  }
  REQUIRE(mine.HasWeightsOf(reference));
  return 0;
}

struct Broken {
  std::string name;
  std::vector<bool> is_ahead;  // of each rank: whether it has finished the step
  bool is_skipped;             // the step changes nothing
  int source;                  // of the parameters
  int64_t expected_step;
};

// The two ranks of a round whose fourth step was completed on none, one or both of them.
TEST(ShardedOptimizer, GoesOnFromAStepThatOnlySomeRanksHaveFinished) {
  const std::vector<Broken> cases = {{"nobody has it", {false, false}, false, 0, kStepsBefore},
                                     {"rank 0 has it", {true, false}, false, 0, kStepsBefore + 1},
                                     {"rank 1 has it", {false, true}, false, 1, kStepsBefore + 1},
                                     {"both have it", {true, true}, false, 0, kStepsBefore + 1}};
  for (const Broken& one : cases) {
    RoundConnector whole;
    RoundConnector broken;
    RoundConnector next;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      const Fourth step = [](RankOptimizer& rank_optimizer, comm::Communicator& communicator) {
        return rank_optimizer.Step(kStepsBefore, &communicator);
      };
      return ContinuesAfter(whole, broken, next, rank, one.is_ahead[static_cast<std::size_t>(rank)], step,
                            one.source, one.expected_step);
    });
    SCOPED_TRACE(one.name);
    ExpectAllSucceed(ranks);
  }
}

// Each rank skips a step alone: the others may have stopped before it.
TEST(ShardedOptimizer, GoesBackBeforeASkippedStepThatAnotherRankHasNotSeen) {
  RoundConnector whole;
  RoundConnector next;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    RankOptimizer reference(false);
    RankOptimizer mine(true);
    auto communicator = whole.Enter(1, rank, 2);
    REQUIRE(communicator.ok() && mine.Sync(**communicator, 0).ok());
    for (int64_t step = 0; step < kStepsBefore; ++step)
      REQUIRE(mine.Step(step, communicator->get()).ok() && reference.Step(step).ok());
    if (rank == 0) mine.sharded().Skip();
    auto of_next = next.Enter(2, rank, 2);
    REQUIRE(of_next.ok());
    const auto version = mine.Sync(**of_next, 1);
    REQUIRE(version.ok() && version->step == kStepsBefore);
    for (int64_t step = kStepsBefore; step < 6; ++step)
      REQUIRE(mine.Step(step, of_next->get()).ok() && reference.Step(step).ok());
    REQUIRE(mine.HasWeightsOf(reference));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Of three ranks in a round, rank 2 is killed. What the others do next, and with which state.
struct Loss {
  int copies;
  bool is_stored;  // there is a checkpoint after one step
  StateSource source;
  int64_t step;
};

class WhereARankDies : public ::testing::TestWithParam<OptimizerName> {};

TEST_P(WhereARankDies, GoesOnFromACopyOrBackToTheCheckpoint) {
  api::TrainingSpec plain = SmallTraining(api::Determinism::kWorld);
  plain.optimizer.name = GetParam();
  if (GetParam() == OptimizerName::kMuon) plain.optimizer.momentum = 0.95;
  const std::string quiet = WeightsAfter(plain, {{1, Trainer::kTotalSteps}});
  for (const Loss& loss : {Loss{2, true, StateSource::kKept, 3}, Loss{1, true, StateSource::kCheckpoint, 1},
                           Loss{1, false, StateSource::kFresh, 0}}) {
    const api::TrainingSpec spec = Sharded(plain, loss.copies);
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
      (*communicator)->Abort();
      communicator = second.Enter(2, rank, 2);
      REQUIRE(communicator.ok());
      const auto source = trainer.Sync(**communicator, [&](TrainingState& state) -> Result<bool> {
        if (!loss.is_stored) {
          LOCKSTEP_TRY(state.StartAfresh());
          return false;
        }
        Trainer stored(plain);  // as a rank alone would have stored it
        RoundConnector alone;
        LOCKSTEP_TRY(const auto of_one, alone.Enter(1, 0, 1));
        LOCKSTEP_TRY(stored.RunRound(of_one, 1));
        const at::NoGradGuard no_grad;
        const auto from = stored.state().Tensors();
        const Range part = testing::ShardsOf(state).PartOf(rank, 2);
        const std::vector<NamedTensor> moments = testing::OptimizerOf(stored.state()).state();
        std::vector<at::Tensor> kinds;
        for (auto kind = moments.begin(); kind != moments.end(); kind += std::ssize(state.parameters)) {
          std::vector<at::Tensor> flat;
          for (auto moment = kind; moment != kind + std::ssize(state.parameters); ++moment)
            flat.push_back(moment->tensor.reshape(-1));
          kinds.push_back(at::cat(flat).narrow(0, part.begin, part.size()));
        }
        for (std::size_t i = 0; i < state.parameters.size(); ++i)
          state.parameters[i].tensor.copy_(from[i].tensor);
        testing::ShardsOf(state).Load(1, part, std::move(kinds));
        state.step = 1;
        return true;
      });
      REQUIRE(source.ok());
      REQUIRE(*source == loss.source);
      REQUIRE(trainer.state().step == loss.step);
      REQUIRE(trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
      parent.Send(std::to_string(std::hash<std::string>{}(trainer.WeightBytes())));
      return 0;
    });
    for (auto& rank : ranks) ASSERT_EQ(rank.channel().Receive(kPatience), "stepped");
    ranks[2].Signal(SIGKILL);
    EXPECT_EQ(ranks[2].Wait(kPatience), 128 + SIGKILL);
    for (const int survivor : {0, 1}) ranks[static_cast<std::size_t>(survivor)].channel().Send("killed");
    for (const int survivor : {0, 1}) {
      auto& rank = ranks[static_cast<std::size_t>(survivor)];
      EXPECT_EQ(rank.channel().Receive(kPatience), quiet) << loss.copies << " copies, rank " << survivor;
      EXPECT_EQ(rank.Wait(kPatience), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ShardedOptimizer, WhereARankDies,
                         ::testing::Values(OptimizerName::kAdamw, OptimizerName::kMuon),
                         [](const auto& optimizer) { return std::string(api::NameOf(optimizer.param)); });

TEST(ShardedOptimizer, RefusesParametersThatCannotBeCut) {
  const api::OptimizerSpec spec;
  const at::Tensor whole = at::zeros({4, 6});
  for (const at::Tensor& odd : {at::zeros({4, 6}).t(), at::zeros({4, 6}, at::kDouble)}) {
    const auto made = ShardedOptimizer::Make(spec, {{"fc1.weight", whole}, {"fc2.weight", odd}}, {});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(made.error().message.find("spec.training.strategy: zero1 cannot divide fc2.weight"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::train

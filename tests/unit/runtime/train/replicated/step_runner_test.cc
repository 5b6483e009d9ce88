#include "runtime/train/replicated/step_runner.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

// The number of ranks, up to a step. A later round may have fewer.
struct Membership {
  int world;
  int64_t until_step;
};

std::string BitsAfter(const api::TrainingSpec& spec, const std::vector<Membership>& rounds,
                      const std::vector<double>& speeds = {}, const std::vector<int64_t>& corrupt = {}) {
  std::vector<RoundConnector> connectors(rounds.size());
  auto ranks = StartRanks(rounds.front().world, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.corrupt = corrupt, .speeds = speeds});
    for (std::size_t i = 0; i < rounds.size() && rank < rounds[i].world; ++i) {
      auto communicator = connectors[i].Enter(static_cast<int64_t>(i), rank, rounds[i].world);
      REQUIRE(communicator.ok());
      REQUIRE(trainer.RunRound(*communicator, rounds[i].until_step).ok());
    }
    parent.Send(trainer.Bits());
    return 0;
  });
  std::string common;
  for (int rank = 0; rank < rounds.back().world; ++rank) {
    const std::string mine =
        ranks[static_cast<std::size_t>(rank)].channel().Receive(kPatience).value_or("nothing");
    EXPECT_TRUE(common.empty() || mine == common) << "rank " << rank;
    common = mine;
  }
  ExpectAllSucceed(ranks);
  return common;
}

TEST(StepRunner, GivesTheSameBitsInAnyWorldWhereAsked) {
  for (const std::optional<int64_t> micro_batch_size :
       {std::optional<int64_t>(), std::optional<int64_t>(5)}) {
    api::TrainingSpec spec = SmallTraining(api::Determinism::kWorld);
    spec.micro_batch_size = micro_batch_size;
    const std::string alone = BitsAfter(spec, {{1, Trainer::kTotalSteps}});
    ASSERT_NE(alone, "nothing");
    for (const int world : {2, 3, 4, 7}) {  // seven: more than there are micro-batches of five samples
      EXPECT_EQ(BitsAfter(spec, {{world, Trainer::kTotalSteps}}), alone) << world << " ranks";
    }
    EXPECT_EQ(BitsAfter(spec, {{4, 2}, {3, 3}, {1, 5}, {1, Trainer::kTotalSteps}}), alone);
    EXPECT_EQ(BitsAfter(spec, {{3, Trainer::kTotalSteps}}, {1, 5, 2}), alone) << "shares by speed";
  }
}

// Shows that the test above is meaningful: with the usual sum the number of ranks changes the bits.
TEST(StepRunner, RoundsDifferentlyInAnotherWorldOtherwise) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  EXPECT_NE(BitsAfter(spec, {{1, Trainer::kTotalSteps}}), BitsAfter(spec, {{3, Trainer::kTotalSteps}}));
}

TEST(StepRunner, LearnsTheSameWithSharesBySpeed) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.cnn.dropout = 0;  // drawn for a micro-batch, which are others here
  spec.optimizer.name = api::OptimizerName::kSgd;
  RoundConnector equal;
  RoundConnector by_speed;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Trainer one(spec);
    Trainer other(spec, {.speeds = {1, 6, 2}});
    auto first = equal.Enter(1, rank, 3);
    REQUIRE(first.ok() && one.RunRound(*first, Trainer::kTotalSteps).ok());
    auto second = by_speed.Enter(2, rank, 3);
    REQUIRE(second.ok() && other.RunRound(*second, Trainer::kTotalSteps).ok());
    REQUIRE(other.last().all.count == one.last().all.count);
    REQUIRE(other.last().local_count != one.last().local_count);
    for (std::size_t i = 0; i < one.state().parameters.size(); ++i) {
      REQUIRE(at::allclose(other.state().parameters[i].tensor, one.state().parameters[i].tensor, 1e-5, 1e-6));
    }
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(StepRunner, ComputesAndSendsInHalfOfTheBytesWhereAsked) {
  const api::TrainingSpec exact = SmallTraining(api::Determinism::kNone);
  api::TrainingSpec half = exact;
  half.precision = api::Precision::kBf16;
  api::TrainingSpec scaled = exact;
  scaled.precision = api::Precision::kFp16;
  api::TrainingSpec compressed = exact;
  compressed.sync.compression = api::Compression::kBf16;
  for (const api::TrainingSpec& spec : {half, scaled, compressed}) {
    RoundConnector first;
    RoundConnector second;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      Trainer one(exact);
      Trainer other(spec);
      auto of_one = first.Enter(1, rank, 2);
      REQUIRE(of_one.ok() && one.RunRound(*of_one, 3).ok());
      auto of_other = second.Enter(2, rank, 2);
      REQUIRE(of_other.ok() && other.RunRound(*of_other, 3).ok());
      REQUIRE(other.last().applied && one.WeightBytes() != other.WeightBytes());
      REQUIRE(std::abs(one.last().loss - other.last().loss) < 0.02 * one.last().loss);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

// The scale begins far too high: overflows are skipped until it fits, on all ranks alike, and do not count as
// divergence.
TEST(StepRunner, SkipsOverflowsOfFp16UntilTheScaleFits) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.precision = api::Precision::kFp16;
  spec.model.cnn.dropout = 0;
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Trainer trainer(spec, {.loss_scale = 0x1p20});
    int64_t applied_at = 0;
    for (int64_t step = 1; applied_at == 0 && step <= Trainer::kTotalSteps; ++step) {
      const std::string before = trainer.WeightBytes();
      REQUIRE(trainer.RunRound(*communicator, step).ok());
      if (trainer.last().applied) {
        applied_at = step;
      } else {
        REQUIRE(trainer.WeightBytes() == before);
        REQUIRE(trainer.last().not_finite.starts_with("gradients of fp16 at the loss scale "));
      }
    }
    REQUIRE(applied_at > 4);
    parent.Send(trainer.Bits());
    return 0;
  });
  const auto bits = ranks[0].channel().Receive(kPatience);
  ASSERT_TRUE(bits.has_value());
  EXPECT_EQ(ranks[1].channel().Receive(kPatience), bits);
  ExpectAllSucceed(ranks);
}

// Positions of the first step: one sample, and all of other micro-batches of two (22 samples in 16 pieces).
std::vector<int64_t> CorruptOf(const api::TrainingSpec& spec) {
  std::vector<int64_t> corrupt = PlanOf(spec).Ids(0, 1, 2);
  for (const int64_t id : PlanOf(spec).Ids(0, 8, 12)) corrupt.push_back(id);
  return corrupt;
}

TEST(StepRunner, SkipsCorruptRecordsWithTheSameBitsInAnyWorldWhereAsked) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kWorld);
  const std::vector<int64_t> corrupt = CorruptOf(spec);
  const std::string alone = BitsAfter(spec, {{1, Trainer::kTotalSteps}}, {}, corrupt);
  ASSERT_NE(alone, "nothing");
  EXPECT_NE(alone, BitsAfter(spec, {{1, Trainer::kTotalSteps}}));
  EXPECT_EQ(BitsAfter(spec, {{3, Trainer::kTotalSteps}}, {}, corrupt), alone);
  EXPECT_EQ(BitsAfter(spec, {{4, 2}, {2, Trainer::kTotalSteps}}, {}, corrupt), alone);
}

// Rank 1 of three has positions 8 to 14 of the first step, all of which are corrupt.
TEST(StepRunner, TakesTheMeanOverTheSamplesThatAreNotCorrupt) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.cnn.dropout = 0;
  spec.optimizer.clip_norm.reset();
  std::vector<int64_t> corrupt = PlanOf(spec).Ids(0, 8, 15);
  corrupt.push_back(PlanOf(spec).Ids(0, 20, 21).front());
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    const Trainer reference(spec, {.corrupt = corrupt});
    const data::Batch good = reference.samples().Get({0, 0, 22});
    const ReplicatedModel& before = reference.replicated();
    const at::Tensor loss = before.model->LossSum(before.model->Forward(good.inputs), good.targets) / 14;
    loss.backward();
    double squares = 0;
    for (const at::Tensor& parameter : before.trained())
      squares += parameter.grad().square().sum().item<double>();
    Trainer trainer(spec, {.corrupt = corrupt});
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 1).ok());
    const StepReport& report = trainer.last();
    REQUIRE(report.applied && report.all.count == 14 && report.all.corrupt == 8);
    REQUIRE(report.local_count == std::vector<int64_t>({8, 0, 6}).at(static_cast<std::size_t>(rank)));
    REQUIRE(report.local_corrupt == std::vector<int64_t>({0, 7, 1}).at(static_cast<std::size_t>(rank)));
    REQUIRE(std::abs(report.loss - loss.item<double>()) < 1e-5);
    REQUIRE(std::abs(report.gradient_norm - std::sqrt(squares)) < 1e-5);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(StepRunner, FailsWhereAllSamplesOfAStepAreCorrupt) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  const std::vector<int64_t> corrupt = PlanOf(spec).Ids(1, 0, 22);
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.corrupt = corrupt});
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 1).ok());
    const std::string before = trainer.StateBytes();
    const Result<void> failed = trainer.RunRound(*communicator, 2);
    REQUIRE(!failed.ok() && failed.error().code == ErrorCode::kDataLoss);
    REQUIRE(
        failed.error().message.starts_with("spec.training.data.path: all 22 samples of step 1 are corrupt"));
    REQUIRE(trainer.StateBytes() == before && trainer.state().step == 1);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// A sample of rank 1's share in the second step is not finite. All ranks skip that step, and report the same.
TEST(StepRunner, SkipsAStepThatIsNotFiniteAndNamesRankAndLayer) {
  for (const api::Determinism determinism : {api::Determinism::kNone, api::Determinism::kWorld}) {
    const api::TrainingSpec spec = SmallTraining(determinism);
    const std::vector<int64_t> non_finite = PlanOf(spec).Ids(1, 10, 11);
    RoundConnector connector;
    auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      auto communicator = connector.Enter(1, rank, 3);
      REQUIRE(communicator.ok());
      Trainer trainer(spec, {.non_finite = non_finite});
      REQUIRE(trainer.RunRound(*communicator, 1).ok());
      REQUIRE(trainer.last().applied && trainer.last().not_finite.empty());
      const std::string before = trainer.StateBytes();
      REQUIRE(trainer.RunRound(*communicator, 2).ok());
      REQUIRE(!trainer.last().applied);
      REQUIRE(trainer.last().not_finite == "rank 1: loss, gradient of fc2.bias");
      REQUIRE(trainer.StateBytes() == before);
      REQUIRE(trainer.RunRound(*communicator, 3).ok());
      REQUIRE(trainer.last().applied);
      REQUIRE(trainer.StateBytes() != before);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

TEST(StepRunner, FailsAfterThreeStepsThatAreNotFinite) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  std::vector<int64_t> all(static_cast<std::size_t>(spec.data.synthetic.samples));
  std::iota(all.begin(), all.end(), 0);
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Trainer trainer(spec, {.non_finite = all});
    REQUIRE(trainer.RunRound(*communicator, 2).ok());
    const Result<void> failed = trainer.RunRound(*communicator, 3);
    REQUIRE(!failed.ok());
    REQUIRE(failed.error().code == ErrorCode::kInvalidArgument);
    for (const char* part : {"3 steps up to step 2", "rank 0: loss, gradient of fc2.bias",
                             "rank 1: loss, gradient of fc2.bias", "spec.training.optimizer.learningRate"}) {
      REQUIRE(failed.error().message.find(part) != std::string::npos);
    }
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(StepRunner, GivesBackWhatTheDataSetThrewAndLeavesTheStateAlone) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.unreadable = PlanOf(spec).Ids(1, 10, 11)});
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 1).ok());
    const std::string before = trainer.StateBytes();
    for (int round = 0; round < 2; ++round) {
      const Result<void> failed = trainer.RunRound(*communicator, 2);
      REQUIRE(!failed.ok());
      REQUIRE(failed.error().code == ErrorCode::kInternal);
      REQUIRE(failed.error().message == "reading data: out of memory");
      REQUIRE(trainer.StateBytes() == before);
    }
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(MakeStrategy, RefusesRunningStatisticsInTheSameBits) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kWorld);
  const auto state = std::move(MakeTrainingState(spec, {{1, 8, 8}, 3})).value();
  state->buffers.push_back({"norm1.running_mean", at::zeros({4})});
  const auto strategy = MakeStrategy(spec, nullptr, testing::ReplicatedOf(*state));
  ASSERT_FALSE(strategy.ok());
  EXPECT_EQ(strategy.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(strategy.error().message.find("spec.training.determinism"), std::string::npos);
  EXPECT_NE(strategy.error().message.find("norm1.running_mean"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::train

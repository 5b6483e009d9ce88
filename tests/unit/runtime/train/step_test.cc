#include "runtime/train/step.h"

#include <gtest/gtest.h>

#include "runtime/train/strategy_choice.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::Meeting;
using testing::StartRanks;

// Dropout, clipping and moments: all that a rank could draw or round in a way of its own. Three steps an
// epoch, the last one short.
api::TrainingSpec Spec(api::Determinism determinism) {
  api::TrainingSpec spec;
  spec.model.name = api::ModelName::kCnn;
  spec.model.cnn = {.channels = {4}, .hidden_size = 16, .dropout = 0.5};
  spec.data.synthetic = {.samples = 50, .test_samples = 10, .shape = {1, 8, 8}, .classes = 3};
  spec.optimizer.clip_norm = 0.5;
  spec.global_batch_size = 22;
  spec.determinism = determinism;
  spec.seed = 3;
  return spec;
}

// One rank's part in a run, over several rounds.
class Trainer {
 public:
  explicit Trainer(const api::TrainingSpec& spec)
      : spec_(spec),
        datasets_(std::move(data::OpenDatasets(spec.data, spec.seed)).value()),
        state_(std::move(MakeTrainingState(spec, {spec.data.synthetic.shape, 3})).value()),
        plan_({.size = datasets_.train->size(), .global_batch = spec.global_batch_size, .seed = 3}),
        ledger_("", "test", clock_),
        phases_(clock_),
        runner_({spec_, plan_, kTotalSteps, *datasets_.train, state_, ledger_, phases_}) {
    state_.step = 0;
  }

  Result<void> RunRound(std::shared_ptr<comm::Communicator> communicator, int64_t until_step) {
    LOCKSTEP_TRY(const auto strategy, MakeStrategy(spec_, communicator, state_));
    runner_.EnterRound(communicator->rank(), communicator->world());
    while (state_.step < until_step) {
      LOCKSTEP_TRY(last_, runner_.Run(*communicator, *strategy, {}, {}));
    }
    return {};
  }
  // Bits of parameters, moments and the newest loss.
  [[nodiscard]] std::string Bits() const {
    std::string bytes(reinterpret_cast<const char*>(&last_.loss), sizeof last_.loss);
    for (const NamedTensor& named : state_.Tensors())
      bytes.append(static_cast<const char*>(named.tensor.const_data_ptr()), named.tensor.nbytes());
    return std::to_string(std::hash<std::string>{}(bytes));
  }

  static constexpr int64_t kTotalSteps = 7;

 private:
  const SystemClock clock_;
  const api::TrainingSpec spec_;
  const data::Datasets datasets_;
  TrainingState state_;
  const data::SamplePlan plan_;
  SampleLedger ledger_;
  PhaseClock phases_;
  StepRunner runner_;
  StepReport last_;
};

// A round of so many ranks, up to a step. A later round may have fewer.
struct Membership {
  int world;
  int64_t until_step;
};

std::string BitsAfter(const api::TrainingSpec& spec, const std::vector<Membership>& rounds) {
  std::vector<Meeting> meetings(rounds.size());
  auto ranks = StartRanks(rounds.front().world, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    for (std::size_t i = 0; i < rounds.size() && rank < rounds[i].world; ++i) {
      auto communicator = meetings[i].Enter(static_cast<int64_t>(i), rank, rounds[i].world);
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
    api::TrainingSpec spec = Spec(api::Determinism::kWorld);
    spec.micro_batch_size = micro_batch_size;
    const std::string alone = BitsAfter(spec, {{1, Trainer::kTotalSteps}});
    ASSERT_NE(alone, "nothing");
    for (const int world : {2, 3, 4, 7}) {  // seven: more than there are micro-batches of five samples
      EXPECT_EQ(BitsAfter(spec, {{world, Trainer::kTotalSteps}}), alone) << world << " ranks";
    }
    EXPECT_EQ(BitsAfter(spec, {{4, 2}, {3, 3}, {1, 5}, {1, Trainer::kTotalSteps}}), alone);
  }
}

// So that the test above proves something: with the usual sum the number of ranks shows.
TEST(StepRunner, RoundsDifferentlyInAnotherWorldOtherwise) {
  const api::TrainingSpec spec = Spec(api::Determinism::kNone);
  EXPECT_NE(BitsAfter(spec, {{1, Trainer::kTotalSteps}}), BitsAfter(spec, {{3, Trainer::kTotalSteps}}));
}

TEST(MakeStrategy, RefusesRunningStatisticsInTheSameBits) {
  const api::TrainingSpec spec = Spec(api::Determinism::kWorld);
  TrainingState state = std::move(MakeTrainingState(spec, {{1, 8, 8}, 3})).value();
  state.buffers.push_back({"norm1.running_mean", at::zeros({4})});
  const auto strategy = MakeStrategy(spec, nullptr, state);
  ASSERT_FALSE(strategy.ok());
  EXPECT_EQ(strategy.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(strategy.error().message.find("spec.training.determinism"), std::string::npos);
  EXPECT_NE(strategy.error().message.find("norm1.running_mean"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::train

#include "runtime/witness/observer.h"

#include <gtest/gtest.h>

namespace lockstep::witness {
namespace {

using namespace std::chrono_literals;
using Messages = std::vector<protocol::FromRank>;

template <typename T>
const T* Find(const Messages& messages) {
  for (const protocol::FromRank& message : messages)
    if (const T* found = std::get_if<T>(&message)) return found;
  return nullptr;
}

class ObserverTest : public ::testing::Test {
 protected:
  Messages See(SteadyTime::duration passed = 100ms, bool is_stopped = false) {
    return observer_.Observe(seen_, is_stopped, now_ += passed);
  }

  SteadyTime now_ = SteadyTime(1h);
  Observer observer_{7};
  Observation seen_{.pid = 12, .steps = 1, .newest_step_at = 10};
};

TEST_F(ObserverTest, ReportsNothingBeforeTheFirstStep) {
  seen_ = {};
  EXPECT_TRUE(See().empty());
  seen_.pid = 12;
  EXPECT_TRUE(See().empty());
}

TEST_F(ObserverTest, ReportsStepsOfTheRoundOnce) {
  const Messages first = See();
  EXPECT_EQ(Find<protocol::PhaseChanged>(first)->phase, protocol::RankPhase::kTrain);
  ASSERT_NE(Find<protocol::Progress>(first), nullptr);
  EXPECT_EQ(Find<protocol::Progress>(first)->round, 7);
  EXPECT_EQ(Find<protocol::Progress>(first)->step, 1);
  EXPECT_TRUE(Find<protocol::Progress>(first)->HasOnlySteps());
  EXPECT_TRUE(See().empty()) << "nothing is new";
  seen_.steps = 4;
  EXPECT_EQ(Find<protocol::Progress>(See())->steps_total, 4);
}

TEST_F(ObserverTest, CountsFromTheStepThatTheProgramResumed) {
  seen_.resumed_step = 500;
  EXPECT_EQ(Find<protocol::Progress>(See())->step, 501);
  EXPECT_EQ(Find<protocol::Progress>(See()), nullptr);
}

// SGD records no step; the framework does.
TEST_F(ObserverTest, ReportsWhatTheFrameworkPostsWithTheNextStep) {
  (void)See();
  seen_.steps = 10;
  observer_.Take(
      {.step = 510, .total_steps = 900, .epoch = 1.5, .loss = 2.25, .learning_rate = 0.1, .gradient_norm = 3},
      seen_);
  seen_.steps = 12;
  const protocol::Progress progress = *Find<protocol::Progress>(See());
  EXPECT_EQ(progress.step, 512);
  EXPECT_EQ(progress.total_steps, 900);
  EXPECT_EQ(progress.epoch, 1.5);
  EXPECT_EQ(progress.loss, 2.25);
  EXPECT_EQ(progress.learning_rate, 0.1);
  EXPECT_EQ(progress.gradient_norm, 3);
  EXPECT_FALSE(progress.HasOnlySteps());
}

TEST_F(ObserverTest, TimesStepsByTheProgramsClockWithoutTheFirst) {
  EXPECT_EQ(Find<protocol::Usage>(See())->step_times.seconds, 0) << "the first step may compile for minutes";
  seen_.steps = 5;
  seen_.newest_step_at = 12;
  const Messages messages = See();
  EXPECT_DOUBLE_EQ(Find<protocol::Usage>(messages)->step_times.seconds, 2);
  EXPECT_EQ(Find<protocol::Usage>(messages)->step_times.counts.at(8), 4) << "four of 0.5 s";
}

TEST_F(ObserverTest, ReportsSecondsByPhaseWithoutCountingTheBackwardPassAsComputing) {
  seen_.seconds = {1, 2, 4, 8, 16, 32, 64};
  const protocol::Progress progress = *Find<protocol::Progress>(See());
  EXPECT_EQ(progress.phase_seconds.at("checkpoint"), 32);
  EXPECT_EQ(protocol::ComputeSeconds(progress.phase_seconds), 3) << "forward and data";
}

TEST_F(ObserverTest, DistinguishesEvaluationsAndSavesFromTraining) {
  (void)See();
  seen_.activity = Activity::kEvaluate;
  EXPECT_EQ(Find<protocol::PhaseChanged>(See())->phase, protocol::RankPhase::kEvaluate);
  EXPECT_TRUE(See().empty());
  seen_.activity = Activity::kSave;
  EXPECT_EQ(Find<protocol::PhaseChanged>(See())->phase, protocol::RankPhase::kSnapshot);
  for (const Activity activity :
       {Activity::kBackward, Activity::kOptimizer, Activity::kStep, Activity::kCollective}) {
    seen_.activity = activity;
    const Messages messages = See();
    EXPECT_EQ(messages.empty(), activity != Activity::kBackward) << "training is one phase";
  }
}

TEST_F(ObserverTest, SaysAgainAndAgainThatItWaitsForDataUnlessItIsStopped) {
  (void)See();
  seen_.activity = Activity::kData;
  EXPECT_TRUE(See().empty()) << "each step reads data";
  EXPECT_EQ(Find<protocol::PhaseChanged>(See(1s))->phase, protocol::RankPhase::kLoad);
  EXPECT_TRUE(See().empty());
  EXPECT_EQ(Find<protocol::PhaseChanged>(See(1s))->phase, protocol::RankPhase::kLoad);
  EXPECT_TRUE(See(5s, true).empty());
  EXPECT_TRUE(See(100ms).empty()) << "it has only just continued";
}

TEST(AnswerFor, SaysWhetherTheProgramWaitsForItsPeers) {
  EXPECT_TRUE(AnswerFor({.activity = Activity::kBackward}).waits_for_peers);
  EXPECT_TRUE(AnswerFor({.activity = Activity::kCollective}).waits_for_peers);
  EXPECT_FALSE(AnswerFor({.activity = Activity::kStep}).waits_for_peers);
  EXPECT_TRUE(AnswerFor({.activity = Activity::kStep, .may_wait_for_peers = true}).waits_for_peers)
      << "on a GPU it waits where it reads a result";
  EXPECT_TRUE(AnswerFor({}).may_take_long);
}

}  // namespace
}  // namespace lockstep::witness

#include "runtime/launch/supervisor/hang_detector.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/train/loop/collective_limit.h"

namespace lockstep::launch {
namespace {

using protocol::LeaveMode;
using protocol::RankPhase;

using namespace std::chrono_literals;
using Kind = HangFinding::Kind;

constexpr auto kTick = 200ms;

class HangDetectorTest : public ::testing::Test {
 protected:
  void SetUp() override { detector_.ProcessStarted(now_); }

  static protocol::HealthConfig Config() {
    return {.first_step_timeout_seconds = 1800, .step_timeout_seconds = 0, .step_timeout_factor = 10};
  }
  void Use(const protocol::HealthConfig& config) {
    detector_ = HangDetector(config);
    detector_.ProcessStarted(now_);
  }

  void Say(const protocol::FromRank& message) { detector_.OnMessage(message, now_); }
  void Phase(RankPhase phase) { Say(protocol::PhaseChanged{phase}); }

  // Lets time pass; the rank answers Pings. Returns the first finding, if there is one.
  HangFinding Pass(std::chrono::milliseconds time, std::optional<protocol::Pong> answer = protocol::Pong{}) {
    for (const SteadyTime end = now_ + time; now_ < end;) {
      now_ += std::min<SteadyTime::duration>(kTick, end - now_);
      const HangFinding finding = detector_.Look(now_);
      if (finding.kind == Kind::kAsk && answer.has_value()) Say(*answer);
      if (finding.kind == Kind::kRoundSeemsStuck) warned_.push_back(now_);
      if (finding.kind == Kind::kRoundIsStuck || finding.kind == Kind::kHangs) return finding;
    }
    return {};
  }
  bool Hangs(std::chrono::milliseconds time, std::optional<protocol::Pong> answer = protocol::Pong{}) {
    return Pass(time, answer).kind == Kind::kHangs;
  }
  // A round with `count` steps of this length, after a first one.
  void Train(int count, std::chrono::milliseconds step) {
    detector_.Assigned(now_);
    Phase(RankPhase::kTrain);
    Steps(count + 1, step);
  }
  void Steps(int count, std::chrono::milliseconds step) {
    for (int i = 0; i < count; ++i) {
      ASSERT_FALSE(Hangs(step));
      Say(protocol::Progress{.round = 1, .step = ++step_});
    }
  }

  SteadyTime now_ = SteadyTime(1h);
  int64_t step_ = 0;
  std::vector<SteadyTime> warned_;  // that a round seems stuck
  HangDetector detector_{Config()};
};

TEST_F(HangDetectorTest, AProgramMayBeSilentForever) {
  detector_.Assigned(now_);
  Phase(RankPhase::kProgram);
  Say(protocol::Progress{.round = 1});
  now_ += 1000h;
  EXPECT_EQ(detector_.Look(now_).kind, Kind::kNothing);
}

// Between two steps a program may do anything; one that is stopped does not answer.
TEST_F(HangDetectorTest, AProgramThatAnswersHasTheBoundOfItsFirstStep) {
  const protocol::Pong answer{.waits_for_peers = true, .may_take_long = true};
  Train(10, 100ms);
  EXPECT_FALSE(Hangs(1780s, answer));
  EXPECT_TRUE(Hangs(5s, std::nullopt)) << "it was stopped since";
  Train(10, 100ms);
  EXPECT_FALSE(Hangs(1805s, answer)) << "the rank that it waits for has the same bound, and is found first";
  EXPECT_EQ(Pass(6s, answer).kind, Kind::kRoundIsStuck);
  EXPECT_EQ(warned_.size(), 1U) << "it can be asked who is missing";
  Train(10, 100ms);
  const HangFinding found = Pass(1805s, protocol::Pong{.may_take_long = true});
  EXPECT_EQ(found.kind, Kind::kHangs);
  EXPECT_EQ(found.bound_seconds, 1800);
}

TEST_F(HangDetectorTest, AProgramWhoseJobBoundsItsStepsHasThatBound) {
  auto config = Config();
  config.step_timeout_seconds = 20;
  Use(config);
  const protocol::Pong answer{.may_take_long = true};
  Train(10, 100ms);
  EXPECT_FALSE(Hangs(19s, answer));
  EXPECT_TRUE(Hangs(3s, answer));
  Train(10, 100ms);
  Phase(RankPhase::kEvaluate);
  EXPECT_FALSE(Hangs(1780s, answer)) << "it bounds steps only";
}

TEST_F(HangDetectorTest, StartingUpHasTheLongBound) {
  for (const RankPhase phase : {RankPhase::kInit, RankPhase::kLoad}) {
    Phase(phase);
    EXPECT_FALSE(Hangs(1799s)) << NameOf(phase);
  }
  Phase(RankPhase::kLoad);
  const HangFinding finding = Pass(1805s);
  EXPECT_EQ(finding.kind, Kind::kHangs);
  EXPECT_EQ(finding.phase, RankPhase::kLoad);
  EXPECT_EQ(finding.bound_seconds, 1800);
}

TEST_F(HangDetectorTest, TheFirstStepOfARoundHasTheLongBoundAgain) {
  Train(10, 100ms);
  detector_.Assigned(now_);
  EXPECT_FALSE(Hangs(600s));
  Phase(RankPhase::kTrain);
  EXPECT_FALSE(Hangs(600s));
}

TEST_F(HangDetectorTest, ToWaitForDataIsNoSilenceAndTeachesNothing) {
  Train(20, 3s);
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(Hangs(1s));
    Phase(RankPhase::kLoad);
  }
  EXPECT_FALSE(Hangs(29s)) << "still the phase train, with its bound";
  const HangFinding finding = Pass(4s);
  EXPECT_EQ(finding.kind, Kind::kHangs);
  EXPECT_EQ(finding.phase, RankPhase::kTrain);
  EXPECT_NEAR(finding.bound_seconds, 30, 0.1);
}

TEST_F(HangDetectorTest, AStepThatWaitedForDataIsLearntAsAWhole) {
  detector_.Assigned(now_);
  Phase(RankPhase::kTrain);
  Steps(1, 1s);
  for (int i = 0; i < 20; ++i) {
    ASSERT_FALSE(Hangs(3s));
    Phase(RankPhase::kLoad);
    Steps(1, 100ms);
  }
  EXPECT_NEAR(Pass(100s).bound_seconds, 31, 0.1);
}

TEST_F(HangDetectorTest, WaitingForARoundHasNoBound) {
  Train(10, 100ms);
  Say(protocol::Ready{.step = 10});
  EXPECT_FALSE(Hangs(24h));
}

TEST_F(HangDetectorTest, LearnsTheBoundFromTypicalSteps) {
  Train(20, 3s);
  EXPECT_FALSE(Hangs(29s));
  const HangFinding finding = Pass(4s);
  EXPECT_EQ(finding.kind, Kind::kHangs);
  EXPECT_NEAR(finding.bound_seconds, 30, 0.1);
}

TEST_F(HangDetectorTest, OneLongStepDoesNotMoveTheBound) {
  Train(20, 3s);
  Steps(1, 25s);
  Steps(5, 3s);
  EXPECT_NEAR(Pass(100s).bound_seconds, 30, 0.1);
}

TEST_F(HangDetectorTest, AMessageThatStandsForManyStepsCountsEach) {
  detector_.Assigned(now_);
  Phase(RankPhase::kTrain);
  for (int i = 0; i < 20; ++i) {
    ASSERT_FALSE(Hangs(20s));
    Say(protocol::Progress{.round = 1, .step = step_ += 10});
  }
  EXPECT_NEAR(Pass(100s).bound_seconds, 20, 0.1);
}

TEST_F(HangDetectorTest, OneMessageThatStandsForEnoughStepsTeachesTheBound) {
  Train(0, 5ms);
  ASSERT_FALSE(Hangs(100ms));
  Say(protocol::Progress{.round = 1, .step = step_ += 30});
  EXPECT_NEAR(Pass(100s).bound_seconds, 10, 0.1);
}

TEST_F(HangDetectorTest, QuickStepsHaveSomeSecondsToo) {
  Train(20, 5ms);
  EXPECT_FALSE(Hangs(9s));
  EXPECT_TRUE(Hangs(2s));
}

TEST_F(HangDetectorTest, AFewStepsTeachNothing) {
  Train(4, 5ms);
  EXPECT_FALSE(Hangs(1700s));
}

TEST_F(HangDetectorTest, AGivenBoundIsTaken) {
  auto config = Config();
  config.step_timeout_seconds = 2;
  Use(config);
  Train(1, 5ms);
  EXPECT_FALSE(Hangs(1900ms));
  EXPECT_TRUE(Hangs(500ms));
}

TEST_F(HangDetectorTest, AnEvaluationIsNotMeasuredByStepsButByThoseBefore) {
  Train(20, 100ms);
  Phase(RankPhase::kEvaluate);
  EXPECT_FALSE(Hangs(300s)) << "3,000 times a step, and nothing known of evaluations";
  Phase(RankPhase::kTrain);
  Steps(5, 100ms);
  Phase(RankPhase::kEvaluate);
  EXPECT_FALSE(Hangs(2999s)) << "ten times the one before";
  EXPECT_TRUE(Hangs(5s));
}

// On a machine that became slower.
TEST_F(HangDetectorTest, AnEvaluationThatGoesOnIsNoHang) {
  Train(20, 100ms);
  Phase(RankPhase::kEvaluate);
  ASSERT_FALSE(Hangs(1s));
  Phase(RankPhase::kTrain);
  Phase(RankPhase::kEvaluate);
  for (int batch = 0; batch < 20; ++batch) {
    ASSERT_FALSE(Hangs(9s)) << "less than the bound since the batch before";
    Phase(RankPhase::kEvaluate);
  }
  EXPECT_TRUE(Hangs(11s)) << "no batch any more";
}

TEST_F(HangDetectorTest, AnEvaluationThatGoesOnIsLearnedAsAWhole) {
  Train(20, 100ms);
  for (int half = 0; half < 2; ++half) {
    Phase(RankPhase::kEvaluate);
    ASSERT_FALSE(Hangs(150s));
  }
  Phase(RankPhase::kTrain);
  Phase(RankPhase::kEvaluate);
  EXPECT_FALSE(Hangs(2999s)) << "ten times the one before";
}

TEST_F(HangDetectorTest, AnEvaluationThatWasCutShortTeachesNothing) {
  Train(20, 100ms);
  Phase(RankPhase::kEvaluate);
  ASSERT_FALSE(Hangs(1s));
  Say(protocol::Ready{.step = step_});
  Train(5, 100ms);
  Phase(RankPhase::kEvaluate);
  EXPECT_FALSE(Hangs(1700s));
}

TEST_F(HangDetectorTest, ACheckpointIsMeasuredByThoseBefore) {
  Train(20, 100ms);
  Phase(RankPhase::kSnapshot);
  EXPECT_FALSE(Hangs(60s));
  Phase(RankPhase::kTrain);
  Steps(5, 100ms);
  Phase(RankPhase::kSnapshot);
  EXPECT_FALSE(Hangs(599s));
  EXPECT_TRUE(Hangs(5s));
}

TEST_F(HangDetectorTest, CheckpointsAndEvaluationsDoNotTeachStepTimes) {
  Train(20, 2s);
  for (int i = 0; i < 50; ++i) {
    for (const RankPhase phase : {RankPhase::kEvaluate, RankPhase::kSnapshot}) {
      Phase(phase);
      ASSERT_FALSE(Hangs(100s));
      Phase(RankPhase::kTrain);
    }
    Steps(1, 2s);
  }
  EXPECT_NEAR(Pass(100s).bound_seconds, 20, 0.1);
}

// 200 steps of 100 ms, then the time that the rank waits for the others.
TEST_F(HangDetectorTest, AWindowOfStepsIsMeasuredByItsSteps) {
  detector_.Assigned(now_);
  Phase(RankPhase::kTrain);
  for (int64_t taken = 1; taken <= 200; ++taken) {
    ASSERT_FALSE(Hangs(100ms));
    Say(protocol::Progress{.round = 1, .steps_under_way = taken});
  }
  EXPECT_NEAR(Pass(100s).bound_seconds, 10, 0.1);
}

TEST_F(HangDetectorTest, AnAverageIsMeasuredByWindows) {
  detector_.Assigned(now_);
  Phase(RankPhase::kTrain);
  for (int64_t window = 0; window < 3; ++window) {
    for (int64_t taken = 1; taken <= 200; ++taken) {
      ASSERT_FALSE(Hangs(100ms));
      Say(protocol::Progress{.round = 1, .step = 200 * window, .steps_under_way = taken});
    }
    Phase(RankPhase::kAverage);
    const protocol::Pong waits{.waits_for_peers = true};
    ASSERT_EQ(Pass(180s, waits).kind, Kind::kNothing) << "a slower rank may take nine times as long";
    Phase(RankPhase::kTrain);
    Say(protocol::Progress{.round = 1, .step = 200 * (window + 1)});
  }
  Phase(RankPhase::kAverage);
  EXPECT_NEAR(Pass(10000s).bound_seconds, 2000, 1);
}

TEST_F(HangDetectorTest, TheLastSaveHasTheLongBound) {
  Train(20, 100ms);
  Phase(RankPhase::kSave);
  EXPECT_FALSE(Hangs(1799s));
}

TEST_F(HangDetectorTest, WhoDoesNotAnswerHangs) {
  Train(20, 100ms);
  const HangFinding finding = Pass(20s, std::nullopt);
  EXPECT_EQ(finding.kind, Kind::kHangs);
  EXPECT_EQ(finding.why, "does not answer");
  EXPECT_LE(finding.silent_seconds, 12.5);
}

TEST_F(HangDetectorTest, WhoComputesHangs) {
  Train(20, 100ms);
  const HangFinding finding = Pass(20s, protocol::Pong{.waits_for_peers = false});
  EXPECT_EQ(finding.why, "does not wait for its peers");
  EXPECT_LE(finding.silent_seconds, 10.5);
}

TEST_F(HangDetectorTest, WhoWaitsForPeersIsAVictimAndLeavesTheRoundPastTwiceTheBound) {
  Train(20, 100ms);
  const protocol::Pong waits{.waits_for_peers = true};
  EXPECT_EQ(Pass(19s, waits).kind, Kind::kNothing);
  EXPECT_EQ(Pass(3s, waits).kind, Kind::kRoundIsStuck);
  EXPECT_EQ(Pass(17s, waits).kind, Kind::kNothing) << "once";
  EXPECT_EQ(Pass(5s, waits).why, "does not leave a collective");
}

TEST_F(HangDetectorTest, WarnsOnceBeforeARoundIsGivenUp) {
  Train(20, 100ms);
  const protocol::Pong waits{.waits_for_peers = true};
  ASSERT_EQ(Pass(22s, waits).kind, Kind::kRoundIsStuck);
  ASSERT_EQ(warned_.size(), 1u);
  EXPECT_NEAR(Seconds(now_ - warned_.front()).count(), 3, 0.5);
  (void)Pass(17s, waits);
  EXPECT_EQ(warned_.size(), 1u);
  Train(1, 100ms);
  ASSERT_EQ(Pass(22s, waits).kind, Kind::kRoundIsStuck);
  EXPECT_EQ(warned_.size(), 2u) << "of the next silence";
}

TEST_F(HangDetectorTest, ARankThatIsAskedToLeaveItsRoundMustAnswerInAnyPhase) {
  Train(1, 100ms);
  Phase(RankPhase::kEvaluate);
  detector_.LeaveRequested(LeaveMode::kAbort, now_);
  EXPECT_EQ(Pass(600s).kind, Kind::kNothing) << "it answers, and has its time for the phase";
  detector_.LeaveRequested(LeaveMode::kAbort, now_);
  EXPECT_EQ(Pass(9s, std::nullopt).kind, Kind::kNothing);
  const HangFinding finding = Pass(2s, std::nullopt);
  EXPECT_EQ(finding.kind, Kind::kHangs);
  EXPECT_EQ(finding.why, "does not answer and does not leave its round");
  EXPECT_EQ(Pass(60s, std::nullopt).kind, Kind::kNothing) << "once";
}

TEST_F(HangDetectorTest, WhoWaitsForItsPeersInARoundThatWasAbortedHangs) {
  Train(1, 100ms);
  Phase(RankPhase::kSync);
  const protocol::Pong waits{.waits_for_peers = true};
  detector_.LeaveRequested(LeaveMode::kYield, now_);
  EXPECT_EQ(Pass(20s, waits).kind, Kind::kNothing) << "the step in flight is completed together";
  detector_.LeaveRequested(LeaveMode::kAbort, now_);
  EXPECT_EQ(Pass(9s, waits).kind, Kind::kNothing);
  EXPECT_EQ(Pass(2s, waits).why, "waits for its peers and does not leave its round");
  detector_.Assigned(now_);
  detector_.LeaveRequested(LeaveMode::kAbort, now_);
  EXPECT_EQ(Pass(5s, waits).kind, Kind::kNothing);
  EXPECT_EQ(Pass(20s, protocol::Pong{}).kind, Kind::kNothing) << "it has come out of the collective";
}

TEST_F(HangDetectorTest, WhoBeginsSomethingElseInsteadOfLeavingHasToAnswerToo) {
  Train(1, 100ms);
  detector_.LeaveRequested(LeaveMode::kAbort, now_);
  Phase(RankPhase::kEvaluate);
  EXPECT_TRUE(Hangs(12s, std::nullopt));
}

TEST_F(HangDetectorTest, WhoLeftItsRoundWaitsForTheNextWithoutABound) {
  Train(1, 100ms);
  detector_.LeaveRequested(LeaveMode::kAbort, now_);
  Say(protocol::Ready{.step = 2});
  EXPECT_EQ(Pass(1h, std::nullopt).kind, Kind::kNothing);
}

TEST_F(HangDetectorTest, AProgramThatIsAskedToLeaveGetsNoPing) {
  detector_.Assigned(now_);
  Phase(RankPhase::kProgram);
  detector_.LeaveRequested(LeaveMode::kAbort, now_);
  EXPECT_EQ(Pass(1h, std::nullopt).kind, Kind::kNothing);
}

TEST_F(HangDetectorTest, AVictimHasTimeAlsoWhereTheBoundIsShort) {
  auto config = Config();
  config.step_timeout_seconds = 2;
  Use(config);
  Train(1, 5ms);
  const protocol::Pong waits{.waits_for_peers = true};
  EXPECT_EQ(Pass(11s, waits).kind, Kind::kNothing);
  EXPECT_EQ(Pass(5s, waits).kind, Kind::kRoundIsStuck);
}

TEST_F(HangDetectorTest, AVictimThatComesToHangItselfIsFound) {
  Train(20, 100ms);
  ASSERT_FALSE(Hangs(11s, protocol::Pong{.waits_for_peers = true}));
  EXPECT_TRUE(Hangs(5s, protocol::Pong{.waits_for_peers = false}));
}

TEST_F(HangDetectorTest, IsFoundOnceInASilence) {
  Train(20, 100ms);
  ASSERT_TRUE(Hangs(20s));
  EXPECT_FALSE(Hangs(1h));
  Steps(1, 100ms);
  EXPECT_TRUE(Hangs(20s));
}

TEST_F(HangDetectorTest, WhatItDidNotHearWhileItWasStoppedItselfIsNoSilence) {
  Train(20, 100ms);
  now_ += 1h;
  EXPECT_FALSE(Hangs(9s, std::nullopt));
  EXPECT_TRUE(Hangs(5s, std::nullopt));
}

TEST_F(HangDetectorTest, ARespawnedProcessStartsUpAgainAndTheStepsStayKnown) {
  Train(20, 100ms);
  detector_.ProcessStarted(now_);
  EXPECT_FALSE(Hangs(600s));
  Train(1, 100ms);
  EXPECT_TRUE(Hangs(20s));
}

// Otherwise a rank that is only late would break its round.
TEST_F(HangDetectorTest, EndsAWaitForPeersBeforeACollectiveDoes) {
  const std::vector<protocol::HealthConfig> policies = {
      {},
      {.step_timeout_seconds = 3600},
      {.first_step_timeout_seconds = 1, .step_timeout_factor = 1.5},
      {.first_step_timeout_seconds = 20, .step_timeout_factor = 100}};
  for (const protocol::HealthConfig& config : policies) {
    const std::chrono::seconds longest(static_cast<int64_t>(config.first_step_timeout_seconds));
    const auto limit = train::CollectiveLimit(config, 1);
    Use(config);
    // The longest allowed evaluation, and the wait for a rank that hangs in the next one.
    Phase(RankPhase::kEvaluate);
    ASSERT_FALSE(Hangs(longest - 2 * kTick));
    Phase(RankPhase::kTrain);
    Phase(RankPhase::kEvaluate);
    EXPECT_EQ(Pass(limit, protocol::Pong{.waits_for_peers = true}).kind, Kind::kRoundIsStuck)
        << limit.count();
    // The same for a step, whose bound may be configured.
    Train(1, 100ms);
    EXPECT_EQ(Pass(limit, protocol::Pong{.waits_for_peers = true}).kind, Kind::kRoundIsStuck)
        << limit.count();
  }
}

}  // namespace
}  // namespace lockstep::launch

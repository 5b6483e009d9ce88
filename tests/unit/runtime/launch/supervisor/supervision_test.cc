#include "tests/unit/runtime/launch/supervisor/supervision_test.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace lockstep::launch {
namespace {

TEST_F(SupervisionTest, MeasuresTheTimeSinceTheLastStep) {
  EnterRound(5);
  EXPECT_EQ(supervision_.CurrentHeartbeat().seconds_since_step, 0);
  (void)Say(protocol::Progress{.round = 5, .step = 8});
  now_ += 3s;
  (void)Say(protocol::PhaseChanged{protocol::RankPhase::kSave});
  EXPECT_EQ(supervision_.CurrentHeartbeat().seconds_since_step, 3);
  (void)Say(protocol::Progress{.round = 5, .step = 8});
  EXPECT_EQ(supervision_.CurrentHeartbeat().seconds_since_step, 3) << "the same step, reported twice";
  (void)Say(protocol::Progress{.round = 6, .step = 5});
  EXPECT_EQ(supervision_.CurrentHeartbeat().seconds_since_step, 0) << "after a checkpoint was restored";
}

TEST_F(SupervisionTest, StandsByForAsLongAsARoundRunsWithoutIt) {
  (void)Say(protocol::Ready{});
  for (int i = 0; i < 10; ++i) {
    now_ += 50s;
    const Actions actions = Send(JoinAnswered{JoinAnswer{.standby = true}});
    EXPECT_NE(Find<StartJoin>(actions), nullptr);
  }
  now_ += 1h;
  EXPECT_EQ(Find<Exit>(Send(JoinAnswered{Error{ErrorCode::kUnavailable, "away"}})), nullptr)
      << "the host is away, and the round goes on";
  EXPECT_EQ(Find<Exit>(Send(JoinAnswered{JoinAnswer{}})), nullptr) << "now there is none: the clock starts";
  now_ += 61s;
  const Actions actions = Send(JoinAnswered{JoinAnswer{}});
  ASSERT_NE(Find<Exit>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(ExitCode::kRendezvous));
}

TEST_F(SupervisionTest, JoinsWithTheRanksStepAndPortOnceItIsReady) {
  const Actions actions = Say(protocol::Ready{.step = 12, .store_port = 4711});
  const auto* join = Find<StartJoin>(actions);
  ASSERT_NE(join, nullptr);
  EXPECT_EQ(join->request.step, 12);
  EXPECT_EQ(join->request.store_port, 4711);
  EXPECT_EQ(join->request.last_round, 0);
}

TEST_F(SupervisionTest, PassesTheAssignmentOnAndWatchesTheRound) {
  (void)Say(protocol::Ready{});
  const Actions actions = Assign(5);
  const auto* sent = Find<SendToRank>(actions);
  ASSERT_NE(sent, nullptr);
  const auto& assignment = std::get<protocol::RankAssignment>(sent->message);
  EXPECT_EQ(assignment.round, 5);
  EXPECT_EQ(assignment.rank, 1);
  EXPECT_EQ(assignment.world, 3);
  EXPECT_EQ(assignment.previous_end, "Scale: 1 newcomer waiting");
  EXPECT_EQ(Find<StartWatch>(actions)->request.round, 5);
}

TEST_F(SupervisionTest, ARoundThatIsOverIsPassedOnWithItsMode) {
  EnterRound(5);
  const Actions actions =
      Send(WatchAnswered{5, protocol::WatchAnswer{.over = true, .mode = LeaveMode::kYield}});
  const auto& over = std::get<protocol::RoundOver>(Find<SendToRank>(actions)->message);
  EXPECT_EQ(over.mode, LeaveMode::kYield);
  EXPECT_EQ(Find<StartJoin>(actions), nullptr) << "only a Ready rank can join";
}

TEST_F(SupervisionTest, ADeadRankLeavesTheRoundAtOnceAndIsRespawned) {
  EnterRound(5);
  const Actions actions = Send(RankExited{.local_rank = 0, .exit_code = 0, .signal = 9});
  ASSERT_NE(Find<ReportLeave>(actions), nullptr);
  EXPECT_EQ(Find<ReportLeave>(actions)->request.reason, LeaveReason::kRankDied);
  EXPECT_NE(Find<SpawnRank>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions), nullptr);
}

TEST_F(SupervisionTest, ALeaveReportsWhatKilledWhichRankOfTheRound) {
  EnterRound(5);
  const Actions actions = Send(RankExited{.signal = 9, .out_of_memory = true, .last_lines = "a\nb"});
  const protocol::LeaveRequest& leave = Find<ReportLeave>(actions)->request;
  EXPECT_EQ(leave.failure.cause, protocol::FailureCause::kInfrastructure);
  EXPECT_EQ(leave.failure.ranks, std::vector<int64_t>{1});
  EXPECT_EQ(leave.failure.exit_code, 137);
  EXPECT_EQ(leave.failure.last_lines, "a\nb");
  EXPECT_EQ(leave.detail, "rank process 0 was ended by signal 9 (SIGKILL): out of memory");
}

TEST_F(SupervisionTest, ARankThatDiesOutsideOfARoundBrokeNone) {
  EnterRound(5);
  (void)Say(protocol::Ready{});
  const Actions actions = Send(RankExited{.exit_code = 1});
  EXPECT_TRUE(Find<ReportLeave>(actions)->request.failure.ranks.empty());
  EXPECT_EQ(Find<ReportLeave>(actions)->request.failure.exit_code, 1);
}

TEST_F(SupervisionTest, AnExitCodeSaysWhyARankEndedAndASignalDoesNot) {
  EnterRound(1);
  EXPECT_EQ(Find<ReportLeave>(Send(RankExited{.exit_code = 143}))->request.failure.cause,
            protocol::FailureCause::kPreemption);
  EnterRound(2);
  EXPECT_EQ(Find<ReportLeave>(Send(RankExited{.signal = 15}))->request.failure.cause,
            protocol::FailureCause::kInfrastructure);
}

TEST_F(SupervisionTest, GivesUpAfterTheInPlaceLimitWithoutAStepBetween) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Find<Exit>(Send(RankExited{.signal = 11})), nullptr);
  const Actions actions = Send(RankExited{.signal = 11, .last_lines = "why"});
  ASSERT_NE(Find<Exit>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(ExitCode::kInfrastructure));
  EXPECT_EQ(Find<Exit>(actions)->last_lines, "why");
  EXPECT_EQ(Find<SpawnRank>(actions), nullptr);
}

TEST_F(SupervisionTest, AStepBetweenResetsTheInPlaceLimit) {
  for (int i = 1; i < 10; ++i) {
    EnterRound(i);
    (void)Say(protocol::Progress{.round = i, .step = i});
    ASSERT_EQ(Find<Exit>(Send(RankExited{.signal = 11})), nullptr) << i;
  }
}

TEST_F(SupervisionTest, ALongRoundWithoutAStepDoesNotResetTheInPlaceLimit) {
  for (int round = 1; round <= 2; ++round) {
    EnterRound(round);
    now_ += 1h;
    (void)Send(Tick{});
    ASSERT_EQ(Find<Exit>(Send(RankExited{.signal = 11})), nullptr);
  }
  EnterRound(3);
  EXPECT_NE(Find<Exit>(Send(RankExited{.signal = 11})), nullptr);
}

TEST_F(SupervisionTest, AUsersErrorEndsThePodWithTheRanksReason) {
  EnterRound(1);
  (void)Say(protocol::Failed{.exit_code = 3, .reason = "spec.training.data.path: /x does not exist"});
  const Actions actions = Send(RankExited{.exit_code = 3, .last_lines = "Traceback"});
  ASSERT_NE(Find<Exit>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions)->last_lines, "Traceback");
  EXPECT_EQ(Find<Exit>(actions)->code, 3);
  EXPECT_EQ(Find<Exit>(actions)->reason, "spec.training.data.path: /x does not exist");
  EXPECT_EQ(Find<SpawnRank>(actions), nullptr);
}

TEST_F(SupervisionTest, TheExitCodeOfARankThatSaidNothingCounts) {
  EnterRound(1);
  const Actions actions = Send(RankExited{.exit_code = 3, .last_lines = "what(): no space"});
  ASSERT_NE(Find<Exit>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions)->code, 3);
  EXPECT_EQ(Find<SpawnRank>(actions), nullptr);
}

TEST_F(SupervisionTest, TheSameErrorAtTheSameStepInTwoRoundsIsTheUsers) {
  EnterRound(1);
  const protocol::Broken error{
      .round = 1, .reason = "forward pass: index 10 is out of bounds", .failed_step = 7};
  const Actions first = Say(error);
  EXPECT_EQ(Find<Exit>(first), nullptr);
  EXPECT_NE(Find<ReportBroken>(first), nullptr);
  EXPECT_EQ(Find<Exit>(Say(error)), nullptr) << "the same round";
  EnterRound(2);
  const Actions second = Say(protocol::Broken{2, error.reason, error.failed_step});
  ASSERT_NE(Find<Exit>(second), nullptr);
  EXPECT_EQ(Find<Exit>(second)->code, static_cast<int>(ExitCode::kUserError));
  EXPECT_EQ(Find<Exit>(second)->reason,
            "failed twice at step 7 on the same samples: forward pass: index 10 is out of bounds");
}

TEST_F(SupervisionTest, AnErrorOutlivesTheProcessThatReportedIt) {
  const protocol::Failed fault{
      .exit_code = 1, .reason = "CUDA error: device-side assert triggered", .failed_step = 7};
  EnterRound(1);
  (void)Say(fault);
  const Actions first = Send(RankExited{.exit_code = 1});
  EXPECT_NE(Find<SpawnRank>(first), nullptr) << "a device fault is the process's, at first";
  EXPECT_EQ(Find<ReportLeave>(first)->request.failure.cause, protocol::FailureCause::kInfrastructure);
  EnterRound(2);
  (void)Say(fault);
  const Actions second = Send(RankExited{.exit_code = 1, .last_lines = "where"});
  ASSERT_NE(Find<Exit>(second), nullptr);
  EXPECT_EQ(Find<Exit>(second)->code, static_cast<int>(ExitCode::kUserError));
  EXPECT_EQ(Find<Exit>(second)->last_lines, "where");
}

TEST_F(SupervisionTest, AnotherStepAnotherErrorOrAPeersFaultIsNoRepetition) {
  EnterRound(1);
  (void)Say(protocol::Broken{.round = 1, .reason = "a", .failed_step = 7});
  EnterRound(2);
  (void)Say(protocol::Progress{.round = 2, .step = 8});
  EXPECT_EQ(Find<Exit>(Say(protocol::Broken{.round = 2, .reason = "a", .failed_step = 8})), nullptr);
  EnterRound(3);
  EXPECT_EQ(Find<Exit>(Say(protocol::Broken{.round = 3, .reason = "b", .failed_step = 8})), nullptr);
  for (int64_t round = 4; round < 40; ++round) {
    EnterRound(round);
    ASSERT_EQ(Find<Exit>(Say(protocol::Broken{.round = round, .reason = "connection closed by peer"})),
              nullptr);
  }
}

TEST_F(SupervisionTest, ErrorsThatDifferEachTimeAreBoundedToo) {
  for (int64_t round = 1; round <= 2; ++round) {
    EnterRound(round);
    const std::string reason = std::to_string(round);
    ASSERT_EQ(Find<Exit>(Say(protocol::Broken{.round = round, .reason = reason, .failed_step = 7})), nullptr);
  }
  EnterRound(3);
  const Actions third = Say(protocol::Broken{.round = 3, .reason = "3", .failed_step = 7});
  ASSERT_NE(Find<Exit>(third), nullptr);
  EXPECT_EQ(Find<Exit>(third)->code, static_cast<int>(ExitCode::kInfrastructure));
}

TEST_F(SupervisionTest, ALostDeviceEndsThePodAtOnce) {
  EnterRound(1);
  (void)Say(protocol::Failed{.exit_code = 8, .reason = "uncorrectable ECC error encountered"});
  const Actions actions = Send(RankExited{.exit_code = 8});
  ASSERT_NE(Find<Exit>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(ExitCode::kDeviceLost));
  EXPECT_EQ(Find<SpawnRank>(actions), nullptr);
}

TEST_F(SupervisionTest, AnEvictedPodExitsWithoutTouchingTheRendezvous) {
  (void)Say(protocol::Ready{});
  const Actions actions = Send(JoinAnswered{Error{ErrorCode::kGone, "replaced"}});
  EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(ExitCode::kEvicted));
  EXPECT_EQ(Find<ReportLeave>(actions), nullptr);
}

TEST_F(SupervisionTest, TrainingContinuesWhileTheHostIsAway) {
  EnterRound(1);
  for (int i = 0; i < 100; ++i) {
    now_ += 10s;
    const Actions actions = Send(WatchAnswered{1, Error{ErrorCode::kUnavailable, "connection refused"}});
    ASSERT_EQ(Find<Exit>(actions), nullptr);
    ASSERT_LE(Find<StartWatch>(actions)->delay, 2s);
  }
}

TEST_F(SupervisionTest, ThereIsADeadlineForJoiningOnceAllPodsHaveStarted) {
  (void)Say(protocol::Ready{});
  now_ += 59s;
  EXPECT_NE(Find<StartJoin>(Send(JoinAnswered{JoinAnswer{}})), nullptr);
  now_ += 2s;
  const Actions actions = Send(JoinAnswered{JoinAnswer{}});
  ASSERT_NE(Find<Exit>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(ExitCode::kRendezvous));
}

TEST_F(SupervisionTest, WaitingForPodsThatHaveNotStartedHasNoDeadline) {
  const JoinAnswer incomplete{.waits_for = "1 of 3 pods have not started"};
  (void)Say(protocol::Ready{.step = 12});
  const Actions first = Send(JoinAnswered{incomplete});
  ASSERT_NE(Find<ReportWaiting>(first), nullptr);
  EXPECT_EQ(Find<ReportWaiting>(first)->waits_for, "1 of 3 pods have not started");
  for (int i = 0; i < 10; ++i) {
    now_ += 50s;
    const Actions actions = Send(JoinAnswered{incomplete});
    ASSERT_NE(Find<StartJoin>(actions), nullptr);
    EXPECT_EQ(Find<StartJoin>(actions)->request.step, 12) << "it keeps its state";
    EXPECT_EQ(Find<ReportWaiting>(actions), nullptr) << "said once";
  }
  now_ += 1h;
  EXPECT_EQ(Find<Exit>(Send(JoinAnswered{Error{ErrorCode::kUnavailable, "away"}})), nullptr);
  EXPECT_EQ(Find<Exit>(Send(JoinAnswered{JoinAnswer{}})), nullptr) << "all have started: the clock starts";
  now_ += 59s;
  EXPECT_EQ(Find<Exit>(Send(JoinAnswered{JoinAnswer{}})), nullptr);
  now_ += 2s;
  EXPECT_NE(Find<Exit>(Send(JoinAnswered{JoinAnswer{}})), nullptr);
}

TEST_F(SupervisionTest, FinishesWhenEveryRankFinished) {
  EnterRound(1);
  (void)Say(protocol::Finished{.step = 100});
  const Actions actions = Send(RankExited{.exit_code = 0});
  EXPECT_EQ(Find<Exit>(actions)->code, 0);
  EXPECT_EQ(Find<ReportLeave>(actions)->request.reason, LeaveReason::kCompleted);
}

TEST_F(SupervisionTest, ACleanExitWithoutHavingFinishedIsAFailure) {
  EnterRound(1);
  EXPECT_NE(Find<SpawnRank>(Send(RankExited{.exit_code = 0})), nullptr);
}

TEST_F(SupervisionTest, EndsAsCompletedWhereTheOthersCompletedTheJob) {
  (void)Say(protocol::Ready{});
  const Actions actions = Send(JoinAnswered{JoinAnswer{.state = JoinState::kCompleted}});
  EXPECT_EQ(Find<Exit>(actions)->code, 0);
  EXPECT_EQ(Find<ReportLeave>(actions)->request.reason, LeaveReason::kCompleted);
}

// The host completes the job when a pod leaves as completed.
TEST_F(SupervisionTest, ReportsNoOtherEndAsCompleted) {
  const auto fail_at_step_7 = [&](int64_t round) {
    EnterRound(round);
    return Say(protocol::Broken{.round = round, .reason = "bad shape", .failed_step = 7});
  };
  const struct {
    const char* name;
    ExitCode code;
    std::function<Actions()> end;
  } cases[] = {
      {"a user's error", ExitCode::kUserError,
       [&] {
         EnterRound(1);
         return Send(RankExited{.exit_code = 3});
       }},
      {"the same error twice", ExitCode::kUserError,
       [&] {
         (void)fail_at_step_7(1);
         return fail_at_step_7(2);
       }},
      {"too many failures", ExitCode::kInfrastructure,
       [&] {
         for (int i = 0; i < 2; ++i) (void)Send(RankExited{.signal = 11});
         return Send(RankExited{.signal = 11});
       }},
      {"no round in time", ExitCode::kRendezvous,
       [&] {
         (void)Say(protocol::Ready{});
         now_ += 61s;
         return Send(JoinAnswered{JoinAnswer{}});
       }},
      {"no host in time", ExitCode::kRendezvous,
       [&] {
         (void)Say(protocol::Ready{});
         now_ += 61s;
         return Send(JoinAnswered{Error{ErrorCode::kUnavailable, "refused"}});
       }},
      {"the end of the grace period", ExitCode::kPreempted,
       [&] {
         EnterRound(1);
         (void)Send(Terminate{});
         return Send(GraceOver{});
       }},
      {"a stop", ExitCode::kPreempted,
       [&] {
         EnterRound(1);
         (void)Send(Terminate{});
         return Send(RankExited{.exit_code = 143});
       }},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.name);
    supervision_ = Supervision(SettingsOf(1));
    (void)supervision_.Start(now_);
    const Actions actions = test.end();
    ASSERT_NE(Find<Exit>(actions), nullptr);
    EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(test.code));
    ASSERT_NE(Find<ReportLeave>(actions), nullptr);
    EXPECT_EQ(Find<ReportLeave>(actions)->request.reason, LeaveReason::kStopping);
  }
}

TEST_F(SupervisionTest, DoesNothingAfterItsExit) {
  EnterRound(5);
  const Actions actions = Send(WatchAnswered{5, Error{ErrorCode::kGone, "replaced"}});
  ASSERT_FALSE(actions.empty());
  EXPECT_TRUE(std::holds_alternative<Exit>(actions.back()));
  EXPECT_TRUE(Send(Terminate{}).empty());
}

TEST_F(SupervisionTest, SigtermLetsTheRanksSaveThenExitsAsPreempted) {
  EnterRound(1);
  const Actions asked = Send(Terminate{});
  EXPECT_EQ(Find<ReportLeave>(asked)->request.reason, LeaveReason::kStopping);
  EXPECT_TRUE(std::holds_alternative<protocol::Stop>(Find<SendToRank>(asked)->message));
  EXPECT_NE(Find<StartGrace>(asked), nullptr);
  const Actions ended = Send(RankExited{.exit_code = 143});
  EXPECT_EQ(Find<Exit>(ended)->code, static_cast<int>(ExitCode::kPreempted));
}

class DividedStateTest : public SupervisionTest {
 protected:
  DividedStateTest() {
    SupervisionSettings settings = SettingsOf(1);
    settings.divides_state = true;
    supervision_ = Supervision(settings);
    (void)supervision_.Start(now_);
  }
};

TEST_F(DividedStateTest, ARankThatLeftItsRoundWithAPartHandsThatOverInTheNext) {
  EnterRound(1);
  const Actions asked = Send(Terminate{});
  EXPECT_EQ(Find<ReportLeave>(asked)->request.reason, LeaveReason::kHandingOver);
  (void)Send(WatchAnswered{1, protocol::WatchAnswer{.over = true, .mode = LeaveMode::kYield}});
  EXPECT_NE(Find<StartJoin>(Say(protocol::Ready{.step = 5, .hands_over = true})), nullptr);
  EXPECT_NE(Find<SendToRank>(Assign(2)), nullptr);
  const Actions ended = Send(RankExited{.exit_code = 143});
  EXPECT_EQ(Find<ReportLeave>(ended)->request.reason, LeaveReason::kStopping);
  EXPECT_EQ(Find<Exit>(ended)->code, static_cast<int>(ExitCode::kPreempted));
}

TEST_F(DividedStateTest, ARankThatWaitsForARoundWithAPartStaysForThat) {
  EnterRound(1);
  (void)Send(WatchAnswered{1, protocol::WatchAnswer{.over = true}});
  (void)Say(protocol::Ready{.step = 5, .hands_over = true});
  EXPECT_EQ(Find<ReportLeave>(Send(Terminate{})), nullptr);
  EXPECT_NE(Find<SendToRank>(Assign(2)), nullptr);
}

TEST_F(DividedStateTest, APodThatHasNothingToHandOverLeavesAtOnce) {
  (void)Say(protocol::Ready{});
  EXPECT_EQ(Find<ReportLeave>(Send(Terminate{}))->request.reason, LeaveReason::kStopping);
  EXPECT_EQ(Find<SendToRank>(Assign(1)), nullptr);
}

TEST_F(DividedStateTest, ARankThatLeftItsRoundWithNothingIsNotWaitedFor) {
  EnterRound(1);
  (void)Send(Terminate{});
  (void)Send(WatchAnswered{1, protocol::WatchAnswer{.over = true}});
  const Actions ready = Say(protocol::Ready{.step = 5});
  EXPECT_EQ(Find<StartJoin>(ready), nullptr);
  EXPECT_EQ(Find<ReportLeave>(ready)->request.reason, LeaveReason::kStopping);
}

TEST_F(SupervisionTest, AHeartbeatsAnswerLeavesTheWatchAlone) {
  EnterRound(5);
  EXPECT_EQ(Find<StartWatch>(Send(HeartbeatAnswered{5, protocol::WatchAnswer{}})), nullptr);
  EXPECT_EQ(Find<StartWatch>(Send(HeartbeatAnswered{5, Error{ErrorCode::kUnavailable, "refused"}})), nullptr);
  EXPECT_NE(Find<StartWatch>(Send(WatchAnswered{5, protocol::WatchAnswer{}})), nullptr);
  EXPECT_EQ(Find<SendToRank>(Send(HeartbeatAnswered{4, protocol::WatchAnswer{.over = true}})), nullptr)
      << "an older round";
  EXPECT_NE(Find<SendToRank>(Send(HeartbeatAnswered{5, protocol::WatchAnswer{.over = true}})), nullptr)
      << "it may be first";
}

TEST_F(SupervisionTest, BeatsAtOnceAfterTheFirstStepOfARoundAndAtTheEnd) {
  EnterRound(5);
  EXPECT_NE(Find<BeatNow>(Say(protocol::Progress{.round = 5, .step = 1})), nullptr);
  EXPECT_EQ(Find<BeatNow>(Say(protocol::Progress{.round = 5, .step = 2})), nullptr) << "not for each step";
  EXPECT_NE(Find<BeatNow>(Say(protocol::Finished{.step = 2})), nullptr);
}

TEST_F(SupervisionTest, AHeartbeatNamesTheRoundWhileThePodIsInIt) {
  EnterRound(5);
  EXPECT_EQ(supervision_.CurrentHeartbeat().round, 5);
  (void)Say(protocol::Ready{});
  EXPECT_EQ(supervision_.CurrentHeartbeat().round, 0);
}

TEST_F(SupervisionTest, BacksOffFromAHostThatIsAwayAndBeginsAgainOnceItAnswers) {
  const Error away{ErrorCode::kUnavailable, "connection refused"};
  const auto watch_again = [&](int64_t round) {
    return Find<StartWatch>(Send(WatchAnswered{round, away}))->delay;
  };
  const auto join_again = [&] { return Find<StartJoin>(Send(JoinAnswered{away}))->delay; };
  (void)Say(protocol::Ready{});
  for (const auto delay : {50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms})
    EXPECT_EQ(join_again(), delay);
  EXPECT_EQ(Find<StartJoin>(Send(JoinAnswered{JoinAnswer{}}))->delay, 0ms);
  EXPECT_EQ(join_again(), 50ms);
  (void)Assign(1);
  for (const auto delay : {50ms, 100ms, 200ms}) EXPECT_EQ(watch_again(1), delay);
  EXPECT_EQ(Find<StartWatch>(Send(WatchAnswered{1, protocol::WatchAnswer{}}))->delay, 0ms);
  for (const auto delay : {50ms, 100ms}) EXPECT_EQ(watch_again(1), delay);
  EnterRound(2);
  EXPECT_EQ(watch_again(2), 50ms) << "of another round";
}

TEST_F(SupervisionTest, ARankThatDiesBeforeTheFirstRoundBreaksNone) {
  (void)Send(RankExited{.signal = 9});
  EnterRound(1);
  (void)Say(protocol::Progress{.round = 1, .step = 1});
  EXPECT_TRUE(supervision_.CurrentHeartbeat().repairs.empty());
}

// The host's machine may have died without closing its connections.
TEST_F(SupervisionTest, AsksAgainAsSoonAsTheHostIsBack) {
  const Result<protocol::WatchAnswer> away = Error{ErrorCode::kDeadlineExceeded, "no answer"};
  (void)Say(protocol::Ready{});
  EXPECT_EQ(Find<StartJoin>(Send(HeartbeatAnswered{0, away})), nullptr);
  EXPECT_NE(Find<StartJoin>(Send(HeartbeatAnswered{0, protocol::WatchAnswer{}})), nullptr);
  EXPECT_EQ(Find<StartJoin>(Send(HeartbeatAnswered{0, protocol::WatchAnswer{}})), nullptr) << "once";
  (void)Assign(5);
  EXPECT_EQ(Find<StartWatch>(Send(HeartbeatAnswered{5, away})), nullptr);
  EXPECT_EQ(Find<StartWatch>(Send(HeartbeatAnswered{5, protocol::WatchAnswer{}}))->request.round, 5);
}

TEST_F(SupervisionTest, RankZeroGetsARequestForACheckpointOnceInARound) {
  const auto is_requested = [&](int64_t round, const std::string& request) {
    const Actions actions = Send(HeartbeatAnswered{round, protocol::WatchAnswer{.save = request}});
    const SendToRank* requested = Find<SendToRank>(actions);
    return requested != nullptr && std::holds_alternative<protocol::Save>(requested->message);
  };
  EnterRound(5, 0);
  EXPECT_FALSE(is_requested(5, ""));
  EXPECT_TRUE(is_requested(5, "now"));
  EXPECT_FALSE(is_requested(5, "now"));
  EXPECT_TRUE(is_requested(5, "again"));
  EnterRound(6, 0);
  EXPECT_TRUE(is_requested(6, "again")) << "the round broke before it was stored";
  EnterRound(7, 1);
  EXPECT_FALSE(is_requested(7, "again")) << "rank 0 is in another pod";
}

TEST_F(SupervisionTest, RankZeroGetsARequestForAProfileOnceInARoundAndItsAnswerIsPassedOn) {
  const auto requested = [&](int64_t round, const std::string& request) {
    const Actions actions = Send(HeartbeatAnswered{round, protocol::WatchAnswer{.profile = {request, 5}}});
    const SendToRank* sent = Find<SendToRank>(actions);
    const auto* wanted = sent == nullptr ? nullptr : std::get_if<protocol::ProfileWanted>(&sent->message);
    return wanted == nullptr ? 0 : wanted->steps;
  };
  EnterRound(5, 0);
  EXPECT_EQ(requested(5, ""), 0);
  EXPECT_EQ(requested(5, "now"), 5);
  EXPECT_EQ(requested(5, "now"), 0);
  EXPECT_NE(Find<BeatNow>(Say(protocol::ProfileAgreed{"now", 7, 11})), nullptr);
  EXPECT_EQ(supervision_.CurrentHeartbeat().profile, (protocol::ProfileAgreed{"now", 7, 11}));
  EXPECT_EQ(requested(5, ""), 0);
  EXPECT_EQ(requested(5, "now"), 5) << "taken back and asked again";
  EnterRound(6, 0);
  EXPECT_EQ(requested(6, "now"), 5) << "the round broke before all knew";
  EnterRound(7, 1);
  EXPECT_EQ(requested(7, "now"), 0) << "rank 0 is in another pod";
  EXPECT_EQ(supervision_.CurrentHeartbeat().profile.request, "");
}

TEST_F(SupervisionTest, EveryHeartbeatReportsDamagedCheckpoints) {
  EnterRound(5, 0);
  const protocol::CheckpointDamaged damaged{120, "s3://b/p/step-120/shard-0: is missing"};
  EXPECT_NE(Find<BeatNow>(Say(damaged)), nullptr);
  EXPECT_EQ(Find<BeatNow>(Say(damaged)), nullptr) << "no event";
  EnterRound(6, 1);
  EXPECT_EQ(supervision_.CurrentHeartbeat().damaged_checkpoints, std::vector{damaged});
}

TEST_F(SupervisionTest, TellsAtOnceThatAStoreIsAwayAndThatItIsBack) {
  EnterRound(3);
  EXPECT_NE(Find<BeatNow>(Say(protocol::StoreUnavailable{"the last checkpoint", "refused"})), nullptr);
  EXPECT_EQ(supervision_.CurrentHeartbeat().store_unavailable.waiting, "the last checkpoint");
  EXPECT_NE(Find<BeatNow>(Say(protocol::StoreUnavailable{})), nullptr);
  EXPECT_EQ(supervision_.CurrentHeartbeat().store_unavailable.waiting, "");
  (void)Say(protocol::StoreUnavailable{"the last checkpoint", "refused"});
  (void)Send(RankExited{.signal = 9});
  EXPECT_EQ(supervision_.CurrentHeartbeat().store_unavailable.waiting, "") << "who waited is gone";
}

TEST_F(SupervisionTest, AFailedSaveIsReportedAtOnceUntilTheNextRound) {
  EnterRound(3);
  EXPECT_NE(Find<BeatNow>(Say(protocol::SaveFailed{40, "quota exceeded"})), nullptr);
  EXPECT_EQ(Find<BeatNow>(Say(protocol::SaveFailed{40, "quota exceeded"})), nullptr) << "the same save";
  EXPECT_EQ(supervision_.CurrentHeartbeat().save_failed, (protocol::SaveFailed{40, "quota exceeded"}));
  (void)Say(protocol::Synced{.round = 4});
  EXPECT_EQ(supervision_.CurrentHeartbeat().save_failed, protocol::SaveFailed{});
}

TEST_F(SupervisionTest, AHeartbeatReportsHowLongEachRankComputed) {
  EnterRound(5);
  (void)Say(protocol::Progress{.round = 5,
                               .step = 9,
                               .steps_total = 4,
                               .samples_total = 32,
                               .phase_seconds = {{"data", 1},
                                                 {"forward", 2},
                                                 {"backward", 4},
                                                 {"reduce", 8},
                                                 {"evaluate", 16},
                                                 {"checkpoint", 32},
                                                 {"optimizer", 64}}});
  const protocol::RankReport report = supervision_.CurrentHeartbeat().ranks.at(0);
  EXPECT_EQ(report.work_round, 5);
  EXPECT_EQ(report.steps, 4);
  EXPECT_EQ(report.samples, 32);
  EXPECT_EQ(report.compute_seconds, 7) << "neither waiting for others, nor evaluating, nor saving";
}

TEST_F(SupervisionTest, AHeartbeatReportsThePlaceAndTheNewestResults) {
  EnterRound(5);
  EXPECT_NE(Find<BeatNow>(Say(protocol::Evaluated{.step = 8, .accuracy = 0.5})), nullptr);
  EXPECT_NE(Find<BeatNow>(Say(protocol::Saved{.step = 9, .uri = "file:///a"})), nullptr);
  (void)Say(protocol::PhaseChanged{protocol::RankPhase::kTrain});
  const protocol::Heartbeat beat = supervision_.CurrentHeartbeat();
  EXPECT_EQ(beat.member.pod, "p");
  EXPECT_EQ(beat.world, 3);
  EXPECT_EQ(beat.first_rank, 1);
  EXPECT_EQ(beat.nproc, 1);
  EXPECT_EQ(beat.evaluation.step, 8);
  EXPECT_EQ(beat.checkpoint.step, 9);
  ASSERT_EQ(beat.ranks.size(), 1U);
  EXPECT_EQ(beat.ranks[0].rank, 1);
}

TEST_F(SupervisionTest, LeavesTheRanksAllButThreeSecondsOfTheGracePeriod) {
  for (const auto& [period, grace] : {std::pair(30.0, 27.0), std::pair(2.0, 1.0)}) {
    SupervisionSettings settings = SettingsOf(1);
    settings.config.grace_period_seconds = period;
    supervision_ = Supervision(settings);
    (void)supervision_.Start(now_);
    const Actions actions = Send(Terminate{});
    EXPECT_EQ(Find<StartGrace>(actions)->seconds, grace);
    EXPECT_EQ(std::get<protocol::Stop>(Find<SendToRank>(actions)->message).grace_seconds, grace);
  }
}

class TwoRanksTest : public SupervisionTest {
 protected:
  TwoRanksTest() : SupervisionTest(2) {}
};

TEST_F(TwoRanksTest, OnlyRankZeroGetsTheHostsRequests) {
  for (int i : {0, 1}) (void)Say(protocol::Ready{}, i);
  (void)Assign(5, 0);
  const Actions actions =
      Send(HeartbeatAnswered{5, protocol::WatchAnswer{.save = "now", .profile = {"now", 5}}});
  ASSERT_EQ(actions.size(), 2U);
  for (const Action& action : actions) EXPECT_EQ(std::get<SendToRank>(action).local_rank, 0);
}

TEST_F(TwoRanksTest, EachRankGetsItsOwnPlace) {
  for (int i : {0, 1}) (void)Say(protocol::Ready{.step = i, .store_port = 70 + i}, i);
  const Actions actions = Assign(1, 4);
  std::vector<int> requested;
  for (const Action& action : actions) {
    const auto* sent = std::get_if<SendToRank>(&action);
    if (sent == nullptr) continue;
    const auto& place = std::get<protocol::RankAssignment>(sent->message);
    EXPECT_EQ(place.rank, 4 + sent->local_rank);
    EXPECT_EQ(place.local_rank, sent->local_rank);
    EXPECT_EQ(place.world, 3);
    EXPECT_EQ(place.address, "10.0.0.1");
    requested.push_back(sent->local_rank);
  }
  EXPECT_EQ(requested, (std::vector<int>{0, 1}));
}

TEST_F(TwoRanksTest, ThePodThatEndsDropsTheRankThatStillRuns) {
  for (int i : {0, 1}) (void)Say(protocol::Ready{}, i);
  const Actions joining = Say(protocol::Ready{.step = 3, .store_port = 7}, 0);
  const protocol::JoinRequest& request = Find<StartJoin>(joining)->request;
  EXPECT_EQ(request.nproc, 2);
  EXPECT_EQ(request.address, "10.0.0.1");
  EXPECT_EQ(request.store_port, 7) << "of the first rank";
  (void)Assign(1, 0);
  const Actions ended = Send(RankExited{.local_rank = 0, .exit_code = 3});
  ASSERT_NE(Find<Exit>(ended), nullptr);
  ASSERT_NE(Find<DropRank>(ended), nullptr);
  EXPECT_EQ(Find<DropRank>(ended)->local_rank, 1);
  EXPECT_EQ(std::count_if(ended.begin(), ended.end(),
                          [](const Action& action) { return std::holds_alternative<DropRank>(action); }),
            1);
  EXPECT_NE(Find<StopPolling>(ended), nullptr);
  EXPECT_NE(Find<BeatNow>(ended), nullptr);
}

TEST_F(TwoRanksTest, ThePodIsCompleteWhenBothHaveFinished) {
  for (int i : {0, 1}) (void)Say(protocol::Ready{}, i);
  (void)Assign(1, 0);
  for (int i : {0, 1}) (void)Say(protocol::Finished{.step = 9}, i);
  EXPECT_TRUE(Send(RankExited{.local_rank = 1}).empty());
  const Actions ended = Send(RankExited{.local_rank = 0});
  EXPECT_EQ(Find<Exit>(ended)->code, 0);
  EXPECT_EQ(Find<DropRank>(ended), nullptr);
}

TEST_F(TwoRanksTest, TheOtherRankIsNotifiedAndThePodJoinsWhenBothAreReady) {
  (void)Say(protocol::Ready{.step = 3}, 0);
  EXPECT_NE(Find<StartJoin>(Say(protocol::Ready{.step = 3}, 1)), nullptr);
  (void)Assign(1);
  const Actions died = Send(RankExited{.local_rank = 1, .signal = 9});
  EXPECT_EQ(Find<SendToRank>(died)->local_rank, 0);
  EXPECT_EQ(std::get<protocol::RoundOver>(Find<SendToRank>(died)->message).mode, LeaveMode::kAbort);
  EXPECT_EQ(Find<StartJoin>(Say(protocol::Ready{.step = 5}, 0)), nullptr);
  const Actions ready = Say(protocol::Ready{.step = -1}, 1);
  ASSERT_NE(Find<StartJoin>(ready), nullptr);
  EXPECT_EQ(Find<StartJoin>(ready)->request.step, 5) << "the survivor's state counts";
}

}  // namespace
}  // namespace lockstep::launch

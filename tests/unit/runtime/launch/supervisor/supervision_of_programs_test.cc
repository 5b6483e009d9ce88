#include "tests/unit/runtime/launch/supervisor/supervision_test.h"

namespace lockstep::launch {
namespace {

class ProgramSupervisionTest : public SupervisionTest {
 protected:
  explicit ProgramSupervisionTest(int nproc = 1) : SupervisionTest(nproc) {
    SupervisionSettings settings = SettingsOf(nproc);
    settings.is_program = true;
    settings.config.health.first_step_timeout_seconds = 100;
    supervision_ = Supervision(settings);
    (void)supervision_.Start(now_);
  }
  Actions Fail(int exit_code) {
    (void)Say(protocol::Failed{.exit_code = exit_code, .reason = "train.py failed"});
    return Send(RankExited{.exit_code = exit_code});
  }
};

TEST_F(ProgramSupervisionTest, ExitCodesOfOursMeanNothing) {
  for (const int code : {2, 3, 4, 8}) {
    supervision_ = Supervision([] {
      SupervisionSettings settings = SettingsOf(1);
      settings.is_program = true;
      return settings;
    }());
    (void)supervision_.Start(now_);
    EnterRound(1);
    const Actions actions = Fail(code);
    EXPECT_EQ(Find<Exit>(actions), nullptr) << code;
    EXPECT_NE(Find<SpawnRank>(actions), nullptr) << code;
    const protocol::RankFailure& failure = Find<ReportLeave>(actions)->request.failure;
    EXPECT_EQ(failure.exit_code, code);
    EXPECT_EQ(failure.cause, protocol::FailureCause::kInfrastructure);
  }
}

TEST_F(ProgramSupervisionTest, RankZeroAloneGetsTheAddressesOfTheRound) {
  supervision_ = Supervision([] {
    SupervisionSettings settings = SettingsOf(2);
    settings.is_program = true;
    return settings;
  }());
  (void)supervision_.Start(now_);
  for (const int local_rank : {0, 1}) (void)Say(protocol::Ready{.store_port = 7}, local_rank);
  const std::vector<std::string> hosts = {"10.0.0.1", "10.0.0.2"};
  const Actions actions =
      Send(JoinAnswered{JoinAnswer{.state = JoinState::kAssigned, .round = 1, .world = 4, .hosts = hosts}});
  std::vector<std::vector<std::string>> sent;
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<SendToRank>(&action))
      sent.push_back(std::get<protocol::RankAssignment>(send->message).hosts);
  }
  EXPECT_EQ(sent, (std::vector<std::vector<std::string>>{hosts, {}}));
}

TEST_F(ProgramSupervisionTest, EachStartOfAProgramLearnsThatItsNodeDeparts) {
  const auto beat = [this](int64_t round, const std::string& departure) {
    return Send(HeartbeatAnswered{round, protocol::WatchAnswer{.departure = departure}});
  };
  EnterRound(1);
  EXPECT_EQ(Find<SendToRank>(beat(1, "")), nullptr);
  const Actions first = beat(1, "the node has the taint t");
  ASSERT_NE(Find<SendToRank>(first), nullptr);
  EXPECT_EQ(std::get<protocol::NodeDeparts>(Find<SendToRank>(first)->message).reason,
            "the node has the taint t");
  EXPECT_EQ(Find<SendToRank>(beat(1, "the node has the taint t")), nullptr) << "once";
  EnterRound(2);
  EXPECT_NE(Find<SendToRank>(beat(2, "the node has the taint t")), nullptr);
}

TEST_F(ProgramSupervisionTest, EachStartOfAProgramLearnsWhenTheCloudTakesTheMachineAway) {
  EXPECT_EQ(Find<SendToRank>(Send(DepartureFound{{"AWS: spot interruption", 1000}})), nullptr)
      << "nothing runs";
  const auto beat = [this](int64_t round) {
    return Send(HeartbeatAnswered{round, protocol::WatchAnswer{.departure = "a taint"}});
  };
  EnterRound(1);
  const Actions first = beat(1);
  ASSERT_NE(Find<SendToRank>(first), nullptr);
  EXPECT_EQ(std::get<protocol::NodeDeparts>(Find<SendToRank>(first)->message).deadline, 1000);
  EXPECT_EQ(Find<SendToRank>(beat(1)), nullptr) << "a taint that follows does not say when";
  EXPECT_EQ(Find<SendToRank>(Send(DepartureFound{{"AWS: spot interruption", 1000}})), nullptr) << "once";
  EnterRound(2);
  EXPECT_NE(Find<SendToRank>(beat(2)), nullptr);
}

TEST_F(ProgramSupervisionTest, ThePodThatGivesUpEndsWithTheProgramsOwnCode) {
  for (int round = 1; round <= 2; ++round) {
    EnterRound(round);
    ASSERT_EQ(Find<Exit>(Fail(42)), nullptr);
  }
  EnterRound(3);
  const Actions actions = Fail(42);
  ASSERT_NE(Find<Exit>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions)->code, 42);
  EXPECT_EQ(Find<Exit>(actions)->reason,
            "rank process 0 exited with code 42 (train.py failed), 3 times without a round of "
            "healthPolicy.firstStepTimeoutSeconds, 100, between");
}

TEST_F(ProgramSupervisionTest, ACodeThatMeansAGoodEndIsNotPassedOn) {
  for (int round = 1; round <= 2; ++round) {
    EnterRound(round);
    (void)Fail(143);
  }
  EnterRound(3);
  EXPECT_EQ(Find<Exit>(Fail(143))->code, static_cast<int>(ExitCode::kInfrastructure));
}

TEST_F(ProgramSupervisionTest, ALongRoundResetsTheInPlaceLimit) {
  for (int round = 1; round < 10; ++round) {
    EnterRound(round);
    now_ += 100s;
    (void)Send(Tick{});
    ASSERT_EQ(Find<Exit>(Fail(1)), nullptr) << round;
  }
}

TEST_F(ProgramSupervisionTest, AShortRoundAndTimeWithoutARoundDoNotResetIt) {
  for (int round = 1; round <= 2; ++round) {
    EnterRound(round);
    now_ += 99s;
    (void)Send(Tick{});
    (void)Say(protocol::Ready{});
    now_ += 100s;
    (void)Send(Tick{});
    ASSERT_EQ(Find<Exit>(Fail(1)), nullptr);
  }
  EnterRound(3);
  EXPECT_NE(Find<Exit>(Fail(1)), nullptr);
}

TEST_F(ProgramSupervisionTest, OneThatHasFinishedWaitsForTheOthers) {
  EnterRound(5);
  (void)Say(protocol::Finished{});
  const Actions actions = Say(protocol::Ready{.store_port = 8});
  EXPECT_EQ(Find<Exit>(actions), nullptr);
  ASSERT_NE(Find<StartJoin>(actions), nullptr);
  EXPECT_EQ(Find<StartJoin>(actions)->request.finished.round, 5);
  (void)Assign(6);
  EXPECT_EQ(Find<StartJoin>(Say(protocol::Ready{}))->request.finished.round, 0)
      << "another failed: once more";
  (void)Assign(7);
  (void)Say(protocol::Finished{});
  (void)Say(protocol::Ready{});
  EXPECT_EQ(Find<Exit>(Send(JoinAnswered{JoinAnswer{.state = JoinState::kCompleted}}))->code, 0);
}

TEST_F(ProgramSupervisionTest, OneThatHasFinishedIsNotCompleteWhenItIsTerminated) {
  EnterRound(5);
  (void)Say(protocol::Finished{});
  (void)Say(protocol::Ready{});
  (void)Send(Terminate{});
  const Actions actions = Send(RankExited{.exit_code = 143});
  EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(ExitCode::kPreempted));
}

TEST_F(ProgramSupervisionTest, NorIsOneThatEndsJustThen) {
  EnterRound(5);
  (void)Send(Terminate{});
  (void)Say(protocol::Finished{});  // it was in flight
  (void)Say(protocol::Ready{});
  const Actions actions = Send(RankExited{.exit_code = 143});
  EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(ExitCode::kPreempted));
}

// ---- programs that join, and so keep their process between rounds

TEST_F(ProgramSupervisionTest, OneThatJoinsIsReadyAgainWithItsStep) {
  EnterRound(5);
  const Actions over = Send(WatchAnswered{5, protocol::WatchAnswer{.over = true, .mode = LeaveMode::kYield}});
  ASSERT_NE(Find<SendToRank>(over), nullptr);
  EXPECT_EQ(std::get<protocol::RoundOver>(Find<SendToRank>(over)->message).mode, LeaveMode::kYield);
  const Actions joins = Say(protocol::Ready{.step = 41, .store_port = 9});
  ASSERT_NE(Find<StartJoin>(joins), nullptr);
  EXPECT_EQ(Find<StartJoin>(joins)->request.step, 41);
  EXPECT_EQ(Find<StartJoin>(joins)->request.store_port, 9);
}

TEST_F(ProgramSupervisionTest, OneThatJoinsReportsThatItsRoundIsBroken) {
  EnterRound(5);
  const Actions actions = Say(protocol::Broken{.round = 5, .reason = "a collective failed"});
  ASSERT_NE(Find<ReportBroken>(actions), nullptr);
  EXPECT_NE(Find<StartJoin>(Say(protocol::Ready{.step = 41})), nullptr);
}

TEST_F(ProgramSupervisionTest, OneThatJoinsGetsTheRequestsForCheckpointsAndProfiles) {
  EnterRound(5, 0);
  const Actions actions =
      Send(HeartbeatAnswered{5, protocol::WatchAnswer{.save = "now", .profile = {"now", 5}}});
  EXPECT_EQ(actions.size(), 2U);
}

TEST_F(ProgramSupervisionTest, ANewPodStartsItsProgramFirstWhereTheOthersKeepTheirState) {
  const Actions joins = Say(protocol::Ready{.store_port = 7, .can_start_first = true});
  EXPECT_TRUE(Find<StartJoin>(joins)->request.can_start_first);
  const Actions starts = Send(JoinAnswered{JoinAnswer{.start_first = true}});
  ASSERT_EQ(starts.size(), 1U) << "it does not join";
  EXPECT_NE(std::get_if<protocol::StartFirst>(&Find<SendToRank>(starts)->message), nullptr);
  const Actions ready = Say(protocol::Ready{.store_port = 9});
  ASSERT_NE(Find<StartJoin>(ready), nullptr);
  EXPECT_EQ(Find<StartJoin>(ready)->request.store_port, 9);
  EXPECT_FALSE(Find<StartJoin>(ready)->request.can_start_first);
}

TEST_F(ProgramSupervisionTest, HeartbeatsSayThatTheRanksKeepTheirState) {
  EnterRound(5);
  EXPECT_FALSE(supervision_.CurrentHeartbeat().keeps_state);
  (void)Say(protocol::Synced{.round = 5});
  EXPECT_TRUE(supervision_.CurrentHeartbeat().keeps_state);
}

TEST_F(ProgramSupervisionTest, AnErrorThatRepeatsAtItsStepEndsThePodWithTheCodeOfTheProgram) {
  for (int round = 1; round <= 2; ++round) {
    EnterRound(round);
    (void)Say(protocol::Failed{
        .exit_code = 42, .reason = "ValueError: x", .failed_step = 17, .rank_continues = true});
    const Actions actions = Send(RankExited{.exit_code = 42});
    if (round == 1) {
      EXPECT_EQ(Find<Exit>(actions), nullptr);
      continue;
    }
    ASSERT_NE(Find<Exit>(actions), nullptr);
    EXPECT_EQ(Find<Exit>(actions)->code, 42);
    EXPECT_EQ(Find<Exit>(actions)->reason, "failed twice at step 17 on the same samples: ValueError: x");
  }
}

// It starts again without a round, and is not Ready until it has joined.
TEST_F(ProgramSupervisionTest, FailuresBeforeItJoinsAgainCountTowardsTheLimit) {
  EnterRound(5);
  (void)Say(protocol::Progress{.round = 5, .step = 41});
  for (int failure = 1; failure <= 2; ++failure) {
    EXPECT_EQ(Find<Exit>(Fail(1)), nullptr) << failure;
    now_ += 1000s;  // not in a round: it proves nothing
    (void)Send(Tick{});
  }
  EXPECT_NE(Find<Exit>(Fail(1)), nullptr);
}

TEST_F(ProgramSupervisionTest, OneThatImportsForLongIsNotJudged) {
  EnterRound(5);
  (void)Fail(1);
  (void)Say(protocol::PhaseChanged{protocol::RankPhase::kProgram});
  for (int i = 0; i < 100; ++i) {
    now_ += 100s;
    EXPECT_TRUE(Send(Tick{}).empty()) << i;
  }
  EXPECT_NE(Find<StartJoin>(Say(protocol::Ready{.step = -1})), nullptr);
}

class TwoProgramsTest : public ProgramSupervisionTest {
 protected:
  TwoProgramsTest() : ProgramSupervisionTest(2) {
    for (int i : {0, 1}) (void)Say(protocol::Ready{}, i);
    (void)Assign(5);
  }
};

TEST_F(TwoProgramsTest, ThePodHasFinishedWhenAllItsRanksHave) {
  (void)Say(protocol::Finished{}, 0);
  EXPECT_EQ(Find<StartJoin>(Say(protocol::Ready{}, 0)), nullptr) << "the other one still runs";
  (void)Say(protocol::Finished{}, 1);
  EXPECT_EQ(Find<StartJoin>(Say(protocol::Ready{}, 1))->request.finished.round, 5);
}

// The limit is two failures without progress.
TEST_F(TwoProgramsTest, RanksThatFailInOneRoundAreOneFailure) {
  for (int64_t round = 5; round < 7; ++round) {
    EXPECT_EQ(Find<Exit>(Send(RankExited{.local_rank = 0, .exit_code = 1})), nullptr);
    EXPECT_EQ(Find<Exit>(Send(RankExited{.local_rank = 1, .exit_code = 1})), nullptr);
    for (int i : {0, 1}) (void)Say(protocol::Ready{}, i);
    (void)Assign(round + 1);
  }
  EXPECT_NE(Find<Exit>(Send(RankExited{.local_rank = 0, .exit_code = 1})), nullptr);
}

TEST_F(TwoProgramsTest, OneThatFailsLeavesTheOtherToBeginAgain) {
  (void)Say(protocol::Finished{}, 0);
  (void)Say(protocol::Ready{}, 0);
  EXPECT_NE(Find<SpawnRank>(Send(RankExited{.local_rank = 1, .exit_code = 1})), nullptr);
  EXPECT_EQ(Find<StartJoin>(Say(protocol::Ready{}, 1))->request.finished.round, 0);
}

}  // namespace
}  // namespace lockstep::launch

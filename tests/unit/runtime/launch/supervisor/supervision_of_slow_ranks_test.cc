#include "tests/unit/runtime/launch/supervisor/supervision_test.h"

namespace lockstep::launch {
namespace {

class HangTest : public SupervisionTest {
 protected:
  explicit HangTest(protocol::HealthAction on_hang = protocol::HealthAction::kRestart) {
    SupervisionSettings settings = SettingsOf(1);
    settings.config.health = {.step_timeout_seconds = 5, .on_hang = on_hang};
    supervision_ = Supervision(settings);
    (void)supervision_.Start(now_);
  }

  void TrainAndFallSilent() {
    EnterRound(5);
    (void)Say(protocol::PhaseChanged{protocol::RankPhase::kTrain});
    (void)Say(protocol::Progress{.round = 5, .step = 5});
  }
  // Ticks until it does something other than send a Ping.
  Actions TickFor(std::chrono::seconds time) {
    for (const SteadyTime end = now_ + time; now_ < end;) {
      now_ += 200ms;
      const Actions actions = Send(Tick{});
      if (!actions.empty() && Find<SendToRank>(actions) == nullptr) return actions;
    }
    return {};
  }
};

TEST_F(HangTest, ARankThatHangsWritesItsStackIsKilledAndRespawnedWithItsCause) {
  TrainAndFallSilent();
  EXPECT_TRUE(TickFor(6s).empty());
  const Actions found = TickFor(3s);
  ASSERT_NE(Find<ReportHang>(found), nullptr);
  EXPECT_NE(Find<WriteStack>(found), nullptr);
  EXPECT_EQ(Find<KillRank>(found), nullptr) << "not before its stack is written";
  EXPECT_NE(Find<KillRank>(TickFor(2s)), nullptr);
  EXPECT_TRUE(TickFor(60s).empty()) << "once";
  const Actions died = Send(RankExited{.signal = 9, .last_lines = "stack"});
  EXPECT_NE(Find<SpawnRank>(died), nullptr);
  const protocol::LeaveRequest& leave = Find<ReportLeave>(died)->request;
  EXPECT_EQ(leave.failure.cause, protocol::FailureCause::kHang);
  EXPECT_EQ(leave.failure.ranks, std::vector<int64_t>{1});
  EXPECT_NEAR(leave.failure.detection_seconds, 7, 0.5);
  EXPECT_EQ(leave.failure.last_lines, "stack");
  EXPECT_NE(leave.detail.find("does not answer"), std::string::npos) << leave.detail;
}

TEST_F(HangTest, TheReasonOfAHangHasWhatNcclKnows) {
  TrainAndFallSilent();
  const Actions found = TickFor(9s);
  ASSERT_NE(Find<AskNccl>(found), nullptr);
  EXPECT_EQ(Find<AskNccl>(found)->formation, 5);
  EXPECT_EQ(Find<AskNccl>(found)->world, 3);
  EXPECT_TRUE(Send(NcclAnswered{5, "rank 1 has not entered AllReduce 7"}).empty());
  EXPECT_NE(Find<KillRank>(TickFor(2s)), nullptr);
  const std::string why = Find<ReportLeave>(Send(RankExited{.signal = 9}))->request.detail;
  EXPECT_NE(why.find("does not answer; by NCCL: rank 1 has not entered AllReduce 7"), std::string::npos)
      << why;
}

TEST_F(HangTest, WhatNcclKnewOfAnEarlierRoundIsNotRepeated) {
  TrainAndFallSilent();
  (void)TickFor(9s);
  (void)Send(NcclAnswered{4, "rank 2 has not entered AllReduce 7"});
  (void)TickFor(2s);
  const std::string why = Find<ReportLeave>(Send(RankExited{.signal = 9}))->request.detail;
  EXPECT_EQ(why.find("NCCL"), std::string::npos) << why;
}

// Each question is passed on between all processes.
TEST_F(HangTest, InALargeRoundOnlyThePodOfRank0AsksNccl) {
  for (const int first_rank : {0, 1}) {
    SupervisionSettings settings = SettingsOf(1);
    settings.config.health = {.step_timeout_seconds = 5};
    supervision_ = Supervision(settings);
    (void)supervision_.Start(now_);
    (void)Say(protocol::Ready{});
    (void)Send(JoinAnswered{
        JoinAnswer{.state = JoinState::kAssigned, .round = 5, .world = 1000, .first_rank = first_rank}});
    (void)Say(protocol::PhaseChanged{protocol::RankPhase::kTrain});
    (void)Say(protocol::Progress{.round = 5, .step = 5});
    const Actions found = TickFor(9s);
    ASSERT_NE(Find<ReportHang>(found), nullptr);
    EXPECT_EQ(Find<AskNccl>(found) != nullptr, first_rank == 0);
  }
}

class ProgramHangTest : public HangTest {
 protected:
  ProgramHangTest() {
    SupervisionSettings settings = SettingsOf(1);
    settings.is_program = true;
    settings.config.health = {.step_timeout_seconds = 5};
    supervision_ = Supervision(settings);
    (void)supervision_.Start(now_);
  }
  // Until its rank has been asked to kill it.
  void HangAndBeKilled() {
    TrainAndFallSilent();
    EXPECT_NE(Find<ReportHang>(TickFor(9s)), nullptr);
    now_ += 1s;
    const Actions actions = Send(Tick{});
    ASSERT_NE(Find<SendToRank>(actions), nullptr);
    EXPECT_TRUE(std::holds_alternative<protocol::KillProgram>(Find<SendToRank>(actions)->message));
    EXPECT_EQ(Find<KillRank>(actions), nullptr) << "the interpreter that is parked for the next round is its";
  }
};

TEST_F(ProgramHangTest, ItsRankSurvivesAndTheCauseIsTheHang) {
  HangAndBeKilled();
  (void)Say(protocol::Failed{.exit_code = 137, .reason = "SIGKILL", .rank_continues = true});
  const Actions died = Send(RankExited{.exit_code = 137});
  EXPECT_EQ(Find<ReportLeave>(died)->request.failure.cause, protocol::FailureCause::kHang);
  EXPECT_NE(Find<SpawnRank>(died), nullptr);
  (void)Say(protocol::Ready{});
  EXPECT_TRUE(TickFor(60s).empty()) << "it waits for the next round";
}

TEST_F(ProgramHangTest, OneThatSigkillDoesNotEndIsKilledWithItsRank) {
  HangAndBeKilled();
  EXPECT_TRUE(TickFor(9s).empty());
  EXPECT_NE(Find<KillRank>(TickFor(2s)), nullptr);
  EXPECT_TRUE(TickFor(60s).empty()) << "once";
}

// Its round ended meanwhile, so its rank reports no failure.
TEST_F(ProgramHangTest, ARankThatIsReadyAgainIsNotKilled) {
  HangAndBeKilled();
  (void)Send(WatchAnswered{5, protocol::WatchAnswer{.over = true, .mode = LeaveMode::kAbort}});
  (void)Say(protocol::Ready{});
  EXPECT_TRUE(TickFor(60s).empty());
}

TEST_F(HangTest, ARankThatWaitsForAnotherIsAskedAndLeftAlone) {
  TrainAndFallSilent();
  now_ += 5s;
  for (int i = 0; i < 20; ++i) {
    now_ += 200ms;
    for (const Action& action : Send(Tick{})) {
      ASSERT_TRUE(std::holds_alternative<SendToRank>(action));
      (void)Say(protocol::Pong{.waits_for_peers = true});
    }
  }
}

TEST_F(HangTest, ARoundInWhichNoRankIsResponsibleIsGivenUpWithoutAKill) {
  TrainAndFallSilent();
  Actions given_up;
  SteadyTime asked_nccl = now_;
  for (int i = 0; i < 100 && Find<ReportBroken>(given_up) == nullptr; ++i) {
    now_ += 200ms;
    given_up = Send(Tick{});
    if (Find<SendToRank>(given_up) != nullptr) (void)Say(protocol::Pong{.waits_for_peers = true});
    if (Find<AskNccl>(given_up) == nullptr) continue;
    asked_nccl = now_;
    (void)Send(NcclAnswered{5, "rank 2 has not entered AllReduce 7"});
  }
  ASSERT_NE(Find<ReportBroken>(given_up), nullptr);
  EXPECT_EQ(Find<ReportBroken>(given_up)->report.round, 5);
  EXPECT_TRUE(Find<ReportBroken>(given_up)->report.reason.ends_with(
      "waits for its peers; by NCCL: rank 2 has not entered AllReduce 7"))
      << Find<ReportBroken>(given_up)->report.reason;
  EXPECT_GE(now_ - asked_nccl, 2s) << "NCCL has this time";
  EXPECT_EQ(std::get<protocol::RoundOver>(Find<SendToRank>(given_up)->message).mode, LeaveMode::kAbort);
  EXPECT_EQ(Find<WriteStack>(given_up), nullptr);
  (void)Say(protocol::Ready{.step = 5});
  EXPECT_TRUE(TickFor(60s).empty()) << "it waits for the next round";
}

// Its phase has no bound yet: an evaluation, the first one.
TEST_F(HangTest, ARankThatIsStoppedWhenItsRoundEndsIsKilled) {
  TrainAndFallSilent();
  (void)Say(protocol::PhaseChanged{protocol::RankPhase::kEvaluate});
  EXPECT_TRUE(TickFor(60s).empty());
  (void)Send(WatchAnswered{5, protocol::WatchAnswer{.over = true, .mode = LeaveMode::kAbort}});
  EXPECT_TRUE(TickFor(9s).empty());
  EXPECT_NE(Find<ReportHang>(TickFor(2s)), nullptr);
  EXPECT_NE(Find<KillRank>(TickFor(2s)), nullptr);
}

TEST_F(HangTest, NothingHangsDuringTheGracePeriod) {
  TrainAndFallSilent();
  (void)Send(Terminate{});
  EXPECT_TRUE(TickFor(60s).empty());
}

TEST_F(HangTest, ARankThatHasEndedIsNotAsked) {
  SupervisionSettings settings = SettingsOf(2);
  settings.config.health = {.step_timeout_seconds = 5};
  supervision_ = Supervision(settings);
  (void)supervision_.Start(now_);
  for (int i : {0, 1}) (void)Say(protocol::Ready{}, i);
  (void)Assign(5, 0);
  for (int i : {0, 1}) {
    (void)Say(protocol::PhaseChanged{protocol::RankPhase::kTrain}, i);
    (void)Say(protocol::Progress{.round = 5, .step = 5}, i);
  }
  (void)Say(protocol::Finished{.step = 5}, 0);
  (void)Send(RankExited{.local_rank = 0});
  Actions actions;
  for (int i = 0; i < 100 && Find<SendToRank>(actions) == nullptr; ++i) {
    now_ += 200ms;
    actions = Send(Tick{});
  }
  ASSERT_NE(Find<SendToRank>(actions), nullptr);
  EXPECT_EQ(Find<SendToRank>(actions)->local_rank, 1);
}

class ReportHangTest : public HangTest {
 protected:
  ReportHangTest() : HangTest(protocol::HealthAction::kReport) {}
};

TEST_F(ReportHangTest, IsReportedAndLeftAlone) {
  TrainAndFallSilent();
  const Actions found = TickFor(9s);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(Find<ReportHang>(found), nullptr);
  EXPECT_NE(Find<AskNccl>(found), nullptr);
  EXPECT_TRUE(TickFor(60s).empty());
}

class ReplacePodOnHangTest : public HangTest {
 protected:
  ReplacePodOnHangTest() : HangTest(protocol::HealthAction::kReplacePod) {}
};

TEST_F(ReplacePodOnHangTest, EndsThePodAfterTheStackIsWritten) {
  TrainAndFallSilent();
  EXPECT_NE(Find<WriteStack>(TickFor(9s)), nullptr);
  (void)Send(NcclAnswered{5, "rank 1 has not entered AllReduce 7"});
  const Actions ended = TickFor(3s);
  ASSERT_NE(Find<Exit>(ended), nullptr);
  EXPECT_EQ(Find<Exit>(ended)->code, static_cast<int>(ExitCode::kHang));
  EXPECT_NE(Find<Exit>(ended)->reason.find("; by NCCL: rank 1"), std::string::npos)
      << Find<Exit>(ended)->reason;
  EXPECT_EQ(Find<ReportLeave>(ended)->request.reason, LeaveReason::kStopping);
}

// Otherwise each answer would cancel a long poll and begin another one, every two seconds in every pod.
class StragglerTest : public SupervisionTest {
 protected:
  explicit StragglerTest(protocol::HealthAction action = protocol::HealthAction::kRestart) {
    SupervisionSettings settings = SettingsOf(1);
    settings.config.health.on_straggler = action;
    supervision_ = Supervision(settings);
    (void)supervision_.Start(now_);
    EnterRound(5);
  }
  Actions ReportSlowRank() {
    return Send(HeartbeatAnswered{5, protocol::WatchAnswer{.stragglers = {{1, 3.25}}}});
  }
};

TEST_F(StragglerTest, IsKilledOnceAndRespawnedWithItsCause) {
  EXPECT_NE(Find<KillRank>(ReportSlowRank()), nullptr);
  EXPECT_EQ(Find<KillRank>(ReportSlowRank()), nullptr) << "it is about to die";
  const Actions died = Send(RankExited{.signal = 9});
  EXPECT_NE(Find<SpawnRank>(died), nullptr);
  const protocol::LeaveRequest& leave = Find<ReportLeave>(died)->request;
  EXPECT_EQ(leave.failure.cause, protocol::FailureCause::kStraggler);
  EXPECT_NE(leave.detail.find("computes 3.2 times as long as the median rank"), std::string::npos)
      << leave.detail;
}

TEST_F(StragglerTest, NothingIsKilledDuringTheGracePeriod) {
  (void)Send(Terminate{});
  EXPECT_EQ(Find<KillRank>(ReportSlowRank()), nullptr);
}

TEST_F(StragglerTest, WhatIsSaidOfAnotherPodsRankIsNotForThisOne) {
  EXPECT_EQ(Find<KillRank>(Send(HeartbeatAnswered{5, protocol::WatchAnswer{.stragglers = {{0, 3}, {2, 3}}}})),
            nullptr);
}

class ReportStragglerTest : public StragglerTest {
 protected:
  ReportStragglerTest() : StragglerTest(protocol::HealthAction::kReport) {}
};

TEST_F(ReportStragglerTest, IsLeftAlone) {
  const Actions actions = ReportSlowRank();
  EXPECT_EQ(Find<KillRank>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions), nullptr);
}

class ReplaceStragglersPodTest : public StragglerTest {
 protected:
  ReplaceStragglersPodTest() : StragglerTest(protocol::HealthAction::kReplacePod) {}
};

TEST_F(ReplaceStragglersPodTest, EndsThePodWithItsCause) {
  const Actions ended = ReportSlowRank();
  ASSERT_NE(Find<Exit>(ended), nullptr);
  EXPECT_EQ(Find<Exit>(ended)->code, static_cast<int>(ExitCode::kStraggler));
  EXPECT_EQ(protocol::CauseOf(Find<Exit>(ended)->code), protocol::FailureCause::kStraggler);
  EXPECT_EQ(Find<ReportLeave>(ended)->request.failure.cause, protocol::FailureCause::kStraggler)
      << "so that it is done once";
}

}  // namespace
}  // namespace lockstep::launch

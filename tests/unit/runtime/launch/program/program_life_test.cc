#include "runtime/launch/program/program_life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string_view>

#include "runtime/launch/supervisor/hang_detector.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using protocol::LeaveMode;

class ProgramLifeTest : public ::testing::Test {
 protected:
  ProgramActions Send(const protocol::ToRank& message) { return life_.On(message, now_); }
  ProgramActions Assign(int64_t round) { return Send(protocol::RankAssignment{.round = round}); }

  template <typename T>
  static const T* Find(const ProgramActions& actions) {
    for (const ProgramAction& action : actions) {
      if (const T* found = std::get_if<T>(&action)) return found;
    }
    return nullptr;
  }
  template <typename T>
  static const T* FindSaid(const ProgramActions& actions) {
    for (const ProgramAction& action : actions) {
      const auto* say = std::get_if<Say>(&action);
      if (say == nullptr) continue;
      if (const T* found = std::get_if<T>(&say->message)) return found;
    }
    return nullptr;
  }

  SteadyTime now_ = SteadyTime(1h);
  ProgramLife life_{"python3 train.py"};
};

TEST_F(ProgramLifeTest, RunsTheCommandInARoundAndSaysSo) {
  EXPECT_NE(Find<Announce>(life_.Start()), nullptr);
  const ProgramActions actions = Assign(3);
  ASSERT_NE(Find<StartProgram>(actions), nullptr);
  EXPECT_EQ(Find<StartProgram>(actions)->assignment.round, 3);
  EXPECT_EQ(FindSaid<protocol::PhaseChanged>(actions)->phase, protocol::RankPhase::kProgram);
  EXPECT_EQ(FindSaid<protocol::Progress>(actions)->round, 3);
}

TEST_F(ProgramLifeTest, ARoundThatIsOverEndsTheCommandAndAnnouncesAgain) {
  (void)Assign(3);
  EXPECT_EQ(Find<SignalProgram>(Send(protocol::RoundOver{3, LeaveMode::kAbort}))->signal, SIGTERM);
  EXPECT_TRUE(life_.Tick(now_ + 9s).empty()) << "it may clean up";
  EXPECT_EQ(Find<SignalProgram>(life_.Tick(now_ + 10s))->signal, SIGKILL);
  EXPECT_TRUE(life_.Tick(now_ + 11s).empty()) << "once";
  const ProgramActions actions = life_.On(ProgramEnd{.exit_code = 137, .signal = SIGKILL});
  EXPECT_NE(Find<Announce>(actions), nullptr);
  EXPECT_EQ(Find<EndRank>(actions), nullptr) << "its end was asked for";
  EXPECT_NE(Find<StartProgram>(Assign(4)), nullptr);
}

// It may have been silent before, because it waited for the rank that hung: while it cleans up, that is nothing against it.
TEST_F(ProgramLifeTest, OneThatWasAskedToEndIsNoLongerJudged) {
  const protocol::ToRank ends[] = {protocol::RoundOver{3, LeaveMode::kAbort},
                                   protocol::Stop{.grace_seconds = 30}};
  for (const protocol::ToRank& end : ends) {
    ProgramLife life("python3 train.py");
    const protocol::HealthConfig health;
    HangDetector detector(health);
    const auto tell = [&](const ProgramActions& actions, SteadyTime now) {
      for (const ProgramAction& action : actions)
        if (const auto* say = std::get_if<Say>(&action)) detector.OnMessage(say->message, now);
    };
    detector.Assigned(now_);
    tell(life.On(protocol::RankAssignment{.round = 3}, now_), now_);
    detector.OnMessage(protocol::PhaseChanged{protocol::RankPhase::kTrain}, now_);
    for (int step = 1; step <= 10; ++step)
      detector.OnMessage(protocol::Progress{.round = 3, .step = step}, now_ + step * 1s);
    const SteadyTime later = now_ + 22s;
    detector.LeaveRequested(LeaveMode::kAbort, later);
    (void)detector.Look(later);
    tell(life.On(end, later), later);
    tell(life.On(protocol::Ping{}, later), later);
    for (int i = 1; i < 50; ++i)
      EXPECT_EQ(detector.Look(later + i * 200ms).kind, HangFinding::Kind::kNothing) << i;
  }
}

TEST_F(ProgramLifeTest, OneThatOutlivesSigkillIsLeftBehind) {
  (void)Assign(3);
  (void)Send(protocol::RoundOver{3, LeaveMode::kAbort});
  EXPECT_EQ(Find<SignalProgram>(life_.Tick(now_ + 10s))->signal, SIGKILL);
  EXPECT_TRUE(life_.Tick(now_ + 19s).empty());
  const ProgramActions actions = life_.Tick(now_ + 20s);
  EXPECT_EQ(FindSaid<protocol::Failed>(actions)->reason,
            "python3 train.py is still there 10 s after SIGKILL");
  EXPECT_EQ(Find<EndRank>(actions)->exit_code, 1);
}

TEST_F(ProgramLifeTest, AnswersAPingForTheProgramOnlyWhileThatRuns) {
  EXPECT_NE(FindSaid<protocol::Pong>(Send(protocol::Ping{})), nullptr);
  (void)Assign(3);
  EXPECT_NE(Find<AnswerForProgram>(Send(protocol::Ping{})), nullptr);
  (void)Send(protocol::RoundOver{3, LeaveMode::kAbort});
  EXPECT_NE(FindSaid<protocol::Pong>(Send(protocol::Ping{})), nullptr) << "it is killed in time";
}

TEST_F(ProgramLifeTest, TheEndOfAnotherRoundIsNoneOfIts) {
  (void)Assign(3);
  EXPECT_TRUE(Send(protocol::RoundOver{2, LeaveMode::kAbort}).empty());
}

TEST_F(ProgramLifeTest, OneThatHasFinishedStaysForTheOthers) {
  (void)Assign(3);
  const ProgramActions actions = life_.On(ProgramEnd{});
  EXPECT_NE(FindSaid<protocol::Finished>(actions), nullptr);
  EXPECT_NE(Find<Announce>(actions), nullptr);
  EXPECT_EQ(Find<EndRank>(actions), nullptr);
  EXPECT_NE(Find<StartProgram>(Assign(4)), nullptr) << "another failed";
}

TEST_F(ProgramLifeTest, ReportsAFailureWithTheCommandsOwnCodeAndAnnouncesAgain) {
  const struct {
    int exit_code;
    int signal;
    const char* error;
    const char* reason;
  } cases[] = {{42, 0, "", "python3 train.py exited with code 42"},
               {137, SIGKILL, "", "python3 train.py was ended by signal 9 (SIGKILL)"},
               {127, 0, "command python3: not found", "command python3: not found"}};
  for (const auto& test : cases) {
    ProgramLife life("python3 train.py");
    (void)life.On(protocol::RankAssignment{.round = 1}, now_);
    const ProgramActions actions = life.On(ProgramEnd{test.exit_code, test.signal, test.error});
    EXPECT_EQ(FindSaid<protocol::Failed>(actions)->reason, test.reason);
    EXPECT_EQ(FindSaid<protocol::Failed>(actions)->exit_code, test.exit_code);
    EXPECT_TRUE(FindSaid<protocol::Failed>(actions)->rank_continues);
    EXPECT_NE(Find<Announce>(actions), nullptr) << "the supervisor decides what follows";
    EXPECT_EQ(Find<EndRank>(actions), nullptr);
  }
}

TEST_F(ProgramLifeTest, StopsWithinTheGracePeriod) {
  (void)Assign(3);
  EXPECT_EQ(Find<SignalProgram>(Send(protocol::Stop{20}))->signal, SIGTERM);
  EXPECT_EQ(life_.deadline(), now_ + 19s);
  EXPECT_EQ(Find<EndRank>(life_.On(ProgramEnd{}))->exit_code, 143)
      << "a clean exit on the way out is no success";
}

TEST_F(ProgramLifeTest, GivesNoticeBeforeItSignals) {
  (void)Assign(3);
  const ProgramActions over = Send(protocol::RoundOver{3, LeaveMode::kAbort});
  ASSERT_EQ(over.size(), 3U);
  EXPECT_EQ(std::get<GiveNotice>(over[1]).notice.reason, NoticeReason::kRoundOver);
  EXPECT_EQ(std::get<GiveNotice>(over[1]).notice.left, Seconds(10));
  EXPECT_TRUE(std::holds_alternative<SignalProgram>(over[2]));
  const ProgramActions stop = Send(protocol::Stop{20});
  const GiveNotice* notice = Find<GiveNotice>(stop);
  ASSERT_NE(notice, nullptr) << "it has another time now";
  EXPECT_EQ(notice->notice.reason, NoticeReason::kTermination);
  EXPECT_EQ(notice->notice.left, Seconds(19));
}

TEST_F(ProgramLifeTest, PassesOnThatItsNodeDepartsWithoutASignal) {
  EXPECT_TRUE(Send(protocol::NodeDeparts{"the node has the taint t"}).empty()) << "nothing runs";
  (void)Assign(3);
  const ProgramActions actions = Send(protocol::NodeDeparts{"the node has the taint t"});
  ASSERT_EQ(actions.size(), 1u);
  const Notice& notice = std::get<GiveNotice>(actions[0]).notice;
  EXPECT_EQ(notice.reason, NoticeReason::kNodeDeparts);
  EXPECT_EQ(notice.left, std::nullopt);
  EXPECT_EQ(notice.detail, "the node has the taint t");
  EXPECT_EQ(notice.until, std::nullopt);
  EXPECT_EQ(Find<GiveNotice>(Send(protocol::NodeDeparts{"AWS", 1000}))->notice.until, WallTime(1000s));
}

TEST_F(ProgramLifeTest, IsKilledWhereItHangsAndItsRankGoesOn) {
  EXPECT_TRUE(Send(protocol::KillProgram{}).empty()) << "nothing runs";
  (void)Assign(3);
  EXPECT_EQ(Find<SignalProgram>(Send(protocol::KillProgram{}))->signal, SIGKILL);
  const ProgramActions ended = life_.On(ProgramEnd{.exit_code = 137, .signal = SIGKILL});
  EXPECT_TRUE(FindSaid<protocol::Failed>(ended)->rank_continues);
  (void)Assign(4);
  (void)Send(protocol::RoundOver{4, LeaveMode::kAbort});
  EXPECT_EQ(Find<SignalProgram>(Send(protocol::KillProgram{}))->signal, SIGKILL)
      << "SIGTERM may reach nothing";
}

TEST_F(ProgramLifeTest, StopsAtOnceWhereNothingRuns) {
  EXPECT_EQ(Find<EndRank>(Send(protocol::Stop{20}))->exit_code, 143);
}

TEST_F(ProgramLifeTest, AStopWhileItLeavesIsNotSignalledTwice) {
  (void)Assign(3);
  (void)Send(protocol::RoundOver{3, LeaveMode::kYield});
  EXPECT_EQ(Find<SignalProgram>(Send(protocol::Stop{5})), nullptr);
  EXPECT_EQ(Find<EndRank>(life_.On(ProgramEnd{.exit_code = 143, .signal = SIGTERM}))->exit_code, 143);
}

// ---- programs that join

class ProgramThatJoinsTest : public ProgramLifeTest {
 protected:
  ProgramActions Speak(const protocol::FromRank& message) { return life_.OnProgram(message); }
  // It was started in this round and has joined it.
  void JoinIn(int64_t round) {
    (void)Assign(round);
    (void)Speak(protocol::Ready{.step = -1});
  }
  ProgramActions Fail() { return life_.On(ProgramEnd{.exit_code = 1}); }

  template <typename T>
  static const T* FindSent(const ProgramActions& actions) {
    for (const ProgramAction& action : actions) {
      const auto* send = std::get_if<SendToProgram>(&action);
      if (send == nullptr) continue;
      if (const T* found = std::get_if<T>(&send->message)) return found;
    }
    return nullptr;
  }
};

TEST_F(ProgramThatJoinsTest, GetsTheAssignmentThatItWasStartedWith) {
  (void)Send(protocol::RankAssignment{.round = 3, .rank = 2, .world = 4});
  EXPECT_FALSE(life_.reports_itself());
  const ProgramActions actions = Speak(protocol::Ready{.step = -1});
  ASSERT_NE(FindSent<protocol::RankAssignment>(actions), nullptr);
  EXPECT_EQ(FindSent<protocol::RankAssignment>(actions)->round, 3);
  EXPECT_EQ(FindSent<protocol::RankAssignment>(actions)->rank, 2);
  EXPECT_EQ(FindSaid<protocol::Ready>(actions), nullptr) << "the supervisor has it in a round already";
  EXPECT_EQ(FindSaid<protocol::PhaseChanged>(actions)->phase, protocol::RankPhase::kSync)
      << "it is judged from now on";
  EXPECT_TRUE(life_.reports_itself());
}

TEST_F(ProgramThatJoinsTest, KeepsItsProcessThroughTheRounds) {
  JoinIn(3);
  const ProgramActions over = Send(protocol::RoundOver{3, LeaveMode::kYield});
  ASSERT_EQ(over.size(), 1u) << "no notice and no signal";
  EXPECT_EQ(FindSent<protocol::RoundOver>(over)->mode, LeaveMode::kYield);
  EXPECT_EQ(life_.deadline(), std::nullopt);
  const ProgramActions ready = Speak(protocol::Ready{.step = 41, .store_port = 7});
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(FindSaid<protocol::Ready>(ready)->step, 41);
  EXPECT_EQ(FindSaid<protocol::Ready>(ready)->store_port, 7);
  const ProgramActions assigned = Assign(4);
  ASSERT_EQ(assigned.size(), 1u) << "nothing is started";
  EXPECT_EQ(FindSent<protocol::RankAssignment>(assigned)->round, 4);
}

TEST_F(ProgramThatJoinsTest, ItsMessagesPassThrough) {
  (void)Assign(3);
  EXPECT_TRUE(Speak(protocol::Progress{.round = 3, .step = 1}).empty()) << "Ready comes first";
  (void)Speak(protocol::Ready{});
  const protocol::FromRank messages[] = {protocol::Progress{.round = 3, .step = 1},
                                         protocol::Usage{},
                                         protocol::PhaseChanged{protocol::RankPhase::kTrain},
                                         protocol::Broken{.round = 3},
                                         protocol::Synced{},
                                         protocol::Evaluated{},
                                         protocol::Saved{},
                                         protocol::SaveFailed{},
                                         protocol::ProfileAgreed{},
                                         protocol::StoreUnavailable{},
                                         protocol::Pong{},
                                         protocol::CheckpointDamaged{},
                                         protocol::Finished{},
                                         protocol::Ready{.step = 1}};
  for (const protocol::FromRank& message : messages) {
    const ProgramActions actions = Speak(message);
    ASSERT_EQ(actions.size(), 1u) << protocol::Encode(message);
    EXPECT_EQ(protocol::Encode(std::get<Say>(actions[0]).message), protocol::Encode(message));
  }
}

TEST_F(ProgramThatJoinsTest, GetsTheMessagesOfTheSupervisorInsteadOfSignals) {
  JoinIn(3);
  const ProgramActions ping = Send(protocol::Ping{});
  EXPECT_NE(FindSent<protocol::Ping>(ping), nullptr);
  EXPECT_NE(Find<AnswerForJoined>(ping), nullptr) << "it may not come to answer itself";
  EXPECT_NE(FindSent<protocol::Save>(Send(protocol::Save{})), nullptr);
  EXPECT_EQ(FindSent<protocol::ProfileWanted>(Send(protocol::ProfileWanted{"p", 5}))->steps, 5);
  const ProgramActions departs = Send(protocol::NodeDeparts{"a taint"});
  ASSERT_EQ(departs.size(), 1u);
  EXPECT_NE(Find<GiveNotice>(departs), nullptr);
  EXPECT_EQ(Find<SignalProgram>(Send(protocol::KillProgram{}))->signal, SIGKILL);
}

TEST_F(ProgramThatJoinsTest, GetsARequestThatCameWhileItImported) {
  (void)Assign(3);
  EXPECT_TRUE(Send(protocol::Save{}).empty());
  EXPECT_TRUE(Send(protocol::ProfileWanted{"p", 5}).empty());
  const ProgramActions joined = Speak(protocol::Ready{});
  EXPECT_NE(FindSent<protocol::Save>(joined), nullptr);
  EXPECT_NE(FindSent<protocol::ProfileWanted>(joined), nullptr);
}

TEST_F(ProgramThatJoinsTest, IsAskedToStopWithinTheGracePeriod) {
  JoinIn(3);
  const ProgramActions stop = Send(protocol::Stop{20});
  EXPECT_EQ(FindSent<protocol::Stop>(stop)->grace_seconds, 19);
  EXPECT_EQ(Find<SignalProgram>(stop), nullptr);
  EXPECT_EQ(Find<GiveNotice>(stop)->notice.reason, NoticeReason::kTermination);
  EXPECT_NE(FindSaid<protocol::Saved>(Speak(protocol::Saved{.step = 9})), nullptr) << "it saves";
  EXPECT_EQ(Find<SignalProgram>(life_.Tick(now_ + 19s))->signal, SIGKILL);
  EXPECT_EQ(Find<EndRank>(life_.On(ProgramEnd{}))->exit_code, 143);
}

TEST_F(ProgramThatJoinsTest, OneThatHasNotJoinedIsStillSignalled) {
  (void)Assign(3);
  EXPECT_EQ(Find<SignalProgram>(Send(protocol::RoundOver{3, LeaveMode::kAbort}))->signal, SIGTERM);
  EXPECT_TRUE(Speak(protocol::Ready{}).empty()) << "it is about to end";
}

TEST_F(ProgramThatJoinsTest, OneThatClosesItsConnectionInARoundHasToEndSoonAfterIt) {
  JoinIn(3);
  const ProgramActions closed = life_.OnDisconnected(now_);
  EXPECT_EQ(FindSaid<protocol::PhaseChanged>(closed)->phase, protocol::RankPhase::kProgram)
      << "it reports no more";
  EXPECT_EQ(life_.deadline(), std::nullopt);
  EXPECT_NE(Find<AnswerForProgram>(Send(protocol::Ping{})), nullptr);
  EXPECT_TRUE(Send(protocol::RoundOver{3, LeaveMode::kAbort}).empty())
      << "a signal would change its exit code";
  EXPECT_NE(life_.deadline(), std::nullopt);
  const ProgramActions ended = life_.On(ProgramEnd{.exit_code = 137, .signal = SIGKILL});
  EXPECT_EQ(FindSaid<protocol::Failed>(ended)->exit_code, 137) << "the others learn that it has died";
  EXPECT_EQ(Find<Announce>(ended), nullptr);
}

TEST_F(ProgramThatJoinsTest, MayConnectAgain) {
  JoinIn(3);
  (void)life_.OnDisconnected(now_);
  EXPECT_EQ(FindSent<protocol::RankAssignment>(Speak(protocol::Ready{}))->round, 3);
}

// Nothing would end it: the supervisor has asked it to leave, or waits for its Ready.
TEST_F(ProgramThatJoinsTest, OneThatClosesItsConnectionBetweenRoundsHasToEndSoon) {
  const protocol::Ready ready{.step = 5};
  const protocol::Broken broken{.round = 3, .reason = "a peer is gone"};
  for (const char* before : {"RoundOver", "Ready", "Broken"}) {
    ProgramLife life("python3 train.py");
    (void)life.On(protocol::RankAssignment{.round = 3}, now_);
    (void)life.OnProgram(ready);
    if (std::string_view(before) == "RoundOver")
      (void)life.On(protocol::RoundOver{3, LeaveMode::kAbort}, now_);
    else if (std::string_view(before) == "Ready")
      (void)life.OnProgram(ready);
    else
      (void)life.OnProgram(broken);
    EXPECT_EQ(Find<SignalProgram>(life.OnDisconnected(now_)), nullptr) << before << ": it may be ending";
    EXPECT_EQ(Find<SignalProgram>(life.Tick(now_ + 10s))->signal, SIGKILL) << before;
    EXPECT_NE(FindSaid<protocol::Failed>(life.On(ProgramEnd{.exit_code = 137, .signal = SIGKILL})), nullptr);
  }
}

TEST_F(ProgramThatJoinsTest, OneThatConnectsAgainBetweenRoundsMayGoOn) {
  JoinIn(3);
  (void)Send(protocol::RoundOver{3, LeaveMode::kAbort});
  (void)life_.OnDisconnected(now_);
  EXPECT_EQ(FindSaid<protocol::Ready>(Speak(protocol::Ready{.step = 5}))->step, 5);
  EXPECT_EQ(life_.deadline(), std::nullopt);
}

TEST_F(ProgramThatJoinsTest, OneThatFailsStartsAgainWithoutARound) {
  (void)Send(protocol::RankAssignment{.round = 3, .rank = 2, .local_rank = 1});
  (void)Speak(protocol::Ready{});
  const ProgramActions actions = Fail();
  EXPECT_TRUE(FindSaid<protocol::Failed>(actions)->rank_continues);
  EXPECT_EQ(Find<Announce>(actions), nullptr) << "the round of the others must not wait for its imports";
  ASSERT_NE(Find<StartProgram>(actions), nullptr);
  EXPECT_EQ(Find<StartProgram>(actions)->assignment.local_rank, 1) << "the variables of the last round";
  EXPECT_EQ(FindSaid<protocol::Progress>(actions), nullptr) << "no round begins";
  EXPECT_EQ(FindSaid<protocol::PhaseChanged>(actions)->phase, protocol::RankPhase::kProgram);
  EXPECT_TRUE(life_.reports_itself());
  EXPECT_TRUE(Send(protocol::RoundOver{3, LeaveMode::kAbort}).empty()) << "not its round";
  EXPECT_TRUE(Assign(4).empty()) << "the answer to the Ready of the one before";
  const ProgramActions ready = Speak(protocol::Ready{.step = -1, .store_port = 9});
  EXPECT_EQ(FindSaid<protocol::Ready>(ready)->store_port, 9);
  EXPECT_EQ(FindSent<protocol::RankAssignment>(ready), nullptr);
  EXPECT_EQ(FindSent<protocol::RankAssignment>(Assign(5))->round, 5);
}

TEST_F(ProgramThatJoinsTest, MayBeStartedBeforeItsFirstRound) {
  const ProgramActions actions = Send(protocol::StartFirst{.local_rank = 1});
  ASSERT_NE(Find<StartProgram>(actions), nullptr);
  EXPECT_EQ(Find<StartProgram>(actions)->assignment.local_rank, 1);
  EXPECT_EQ(FindSaid<protocol::Progress>(actions), nullptr) << "no round begins";
  EXPECT_TRUE(Send(protocol::StartFirst{}).empty()) << "it runs";
  EXPECT_NE(FindSaid<protocol::Ready>(Speak(protocol::Ready{})), nullptr);
  EXPECT_EQ(FindSent<protocol::RankAssignment>(Assign(5))->round, 5);
}

TEST_F(ProgramThatJoinsTest, OneThatEndsBeforeItJoinsAgainIsStartedWithoutARoundOnceMore) {
  JoinIn(3);
  for (int i = 0; i < 3; ++i) {
    const ProgramActions actions = Fail();
    EXPECT_NE(FindSaid<protocol::Failed>(actions), nullptr) << "the supervisor counts them";
    EXPECT_NE(Find<StartProgram>(actions), nullptr);
    EXPECT_EQ(Find<Announce>(actions), nullptr);
  }
  const ProgramActions done = life_.On(ProgramEnd{});
  EXPECT_NE(FindSaid<protocol::Finished>(done), nullptr) << "a program that does not join after all";
  EXPECT_NE(Find<Announce>(done), nullptr);
  (void)Assign(4);
  EXPECT_NE(Find<Announce>(Fail()), nullptr);
}

TEST_F(ProgramThatJoinsTest, SaysOnceThatItHasFinished) {
  JoinIn(3);
  EXPECT_NE(FindSaid<protocol::Finished>(Speak(protocol::Finished{})), nullptr);
  const ProgramActions ended = life_.On(ProgramEnd{});
  EXPECT_EQ(FindSaid<protocol::Finished>(ended), nullptr);
  EXPECT_NE(Find<Announce>(ended), nullptr);
  JoinIn(4);
  (void)Speak(protocol::Finished{});
  (void)Speak(protocol::Ready{});  // another failed
  (void)Assign(5);
  EXPECT_NE(FindSaid<protocol::Finished>(life_.On(ProgramEnd{})), nullptr) << "of this round";
}

TEST_F(ProgramThatJoinsTest, ItsOwnReasonGoesWithItsExitCode) {
  JoinIn(3);
  EXPECT_TRUE(Speak(protocol::Failed{.exit_code = 3, .reason = "ValueError: x", .failed_step = 17}).empty())
      << "it ends next";
  const ProgramActions actions = Fail();
  const auto* failed = FindSaid<protocol::Failed>(actions);
  EXPECT_EQ(failed->reason, "ValueError: x");
  EXPECT_EQ(failed->failed_step, 17);
  EXPECT_EQ(failed->exit_code, 1) << "of its process";
  EXPECT_TRUE(failed->rank_continues);
  EXPECT_EQ(FindSaid<protocol::Failed>(Fail())->failed_step, -1) << "of the next process nothing is known";
}

TEST(ProgramEnvironment, IsTorchrunsOfTheRound) {
  protocol::WorkerConfig config;
  config.nproc = 2;
  config.job.uid = "uid";
  const std::vector<std::string> environment = ProgramEnvironment(
      {.round = 3, .rank = 5, .world = 6, .local_rank = 1, .store_host = "10.0.0.1", .store_port = 29501},
      config, 4);
  EXPECT_THAT(environment,
              ::testing::IsSupersetOf({"MASTER_ADDR=10.0.0.1", "MASTER_PORT=29501", "RANK=5", "WORLD_SIZE=6",
                                       "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=2",
                                       "GROUP_WORLD_SIZE=3", "NODE_RANK=2", "TORCHELASTIC_RUN_ID=uid",
                                       "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_USE_AGENT_STORE=False",
                                       "LOCKSTEP_ROUND=3", "OMP_NUM_THREADS=4"}));
  const std::vector<std::string> chosen = ProgramEnvironment({.round = 1}, config, 0);
  EXPECT_THAT(chosen, ::testing::Not(::testing::Contains(::testing::StartsWith("OMP_NUM_THREADS="))));
}

}  // namespace
}  // namespace lockstep::launch

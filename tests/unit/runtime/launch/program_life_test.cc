#include "runtime/launch/program_life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "runtime/launch/hang_detector.h"

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
  EXPECT_EQ(FindSaid<protocol::PhaseChanged>(actions)->phase, kProgramPhase);
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
    detector.OnMessage(protocol::PhaseChanged{"train"}, now_);
    for (int step = 1; step <= 10; ++step)
      detector.OnMessage(protocol::Progress{.round = 3, .step = step}, now_ + step * 1s);
    const SteadyTime later = now_ + 22s;
    detector.LeaveRequested(later);
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

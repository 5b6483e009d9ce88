#include "tests/unit/runtime/launch/supervisor/supervision_test.h"

namespace lockstep::launch {
namespace {

// A pod of two in round 5; pod 0 hosts the formations.
class SupervisionWithoutHostTest : public SupervisionTest {
 protected:
  SupervisionWithoutHostTest() { Enter(1); }

  void Enter(int first_rank) {
    (void)Say(protocol::Ready{.step = 4, .store_port = 7});
    entered_ = Send(JoinAnswered{JoinAnswer{.state = JoinState::kAssigned,
                                            .round = 5,
                                            .world = 2,
                                            .first_rank = first_rank,
                                            .store_host = "10.0.0.9",
                                            .store_port = 70,
                                            .form_port = 90,
                                            .form_key = "secret"}});
  }
  // A peer died; our rank reports it, and is ready for another formation.
  Actions Break(int64_t formation) {
    (void)Say(protocol::Broken{.round = formation, .reason = "connection reset"});
    return Say(protocol::Ready{.step = 9, .store_port = 8});
  }
  Actions FormAgain(int64_t formation) {
    return Send(FormAnswered{
        protocol::FormAnswer{.formed = true, .formation = formation, .store_port = 71, .newest_step = 9}});
  }
  Actions RefuseJoin() { return Send(JoinAnswered{Error{ErrorCode::kUnavailable, "connection refused"}}); }

  Actions entered_;
};

TEST_F(SupervisionWithoutHostTest, AsksTheMembersOnceTheHostRefuses) {
  EXPECT_EQ(Find<StartForming>(Break(5)), nullptr) << "the host may be there";
  const Actions actions = RefuseJoin();
  ASSERT_NE(Find<StartForming>(actions), nullptr);
  EXPECT_NE(Find<StartJoin>(actions), nullptr) << "the first answer decides";
  const StartForming& form = *Find<StartForming>(actions);
  EXPECT_EQ(form.at.host, "10.0.0.9");
  EXPECT_EQ(form.at.port, 90);
  EXPECT_EQ(form.at.key, "secret");
  EXPECT_EQ(form.request.round, 5);
  EXPECT_EQ(form.request.formation, 5);
  EXPECT_EQ(form.request.first_rank, 1);
  EXPECT_EQ(form.request.store_port, 8);
  EXPECT_EQ(form.request.step, 9);
  EXPECT_EQ(Find<StartForming>(RefuseJoin()), nullptr) << "once";
}

TEST_F(SupervisionWithoutHostTest, AsksTheMembersAfterASecondOfSilence) {
  EXPECT_NE(Find<BeatNow>(Break(5)), nullptr) << "its answer says whether the host is there";
  now_ += 900ms;
  EXPECT_EQ(Find<StartForming>(Send(Tick{})), nullptr);
  now_ += 100ms;
  EXPECT_NE(Find<StartForming>(Send(Tick{})), nullptr);
}

TEST_F(SupervisionWithoutHostTest, AsksTheMembersAtOnceWhereTheHostIsKnownToBeAway) {
  (void)Send(HeartbeatAnswered{5, Error{ErrorCode::kUnavailable, "connection refused"}});
  const Actions actions = Break(5);
  ASSERT_NE(Find<StartForming>(actions), nullptr);
  EXPECT_EQ(Find<StartForming>(actions)->delay, 0ms);
}

TEST_F(SupervisionWithoutHostTest, AsksTheMembersWithoutADelayAtFirst) {
  (void)Break(5);
  now_ += 1s;
  EXPECT_EQ(Find<StartForming>(Send(Tick{}))->delay, 0ms);
  EXPECT_EQ(Find<StartForming>(Send(Tick{})), nullptr) << "once";
}

TEST_F(SupervisionWithoutHostTest, WatchesTheMembersOnceTheHostNoLongerAnswersTheWatch) {
  const Error away{ErrorCode::kUnavailable, "connection refused"};
  EXPECT_EQ(Find<StartFormationWatch>(Send(WatchAnswered{5, protocol::WatchAnswer{}})), nullptr);
  const Actions actions = Send(WatchAnswered{5, away});
  ASSERT_NE(Find<StartFormationWatch>(actions), nullptr);
  EXPECT_EQ(Find<StartFormationWatch>(actions)->delay, 0ms);
  EXPECT_NE(Find<StartWatch>(actions), nullptr);
  EXPECT_EQ(Find<StartFormationWatch>(Send(WatchAnswered{5, away})), nullptr) << "once";
  EXPECT_NE(Find<StopAskingMembers>(Send(WatchAnswered{5, protocol::WatchAnswer{}})), nullptr);
}

TEST_F(SupervisionWithoutHostTest, AHostThatAnswersIsWaitedFor) {
  (void)Break(5);
  now_ += 500ms;
  (void)Send(HeartbeatAnswered{0, protocol::WatchAnswer{}});
  now_ += 60s;
  EXPECT_EQ(Find<StartForming>(Send(Tick{})), nullptr);
}

TEST_F(SupervisionWithoutHostTest, AHostThatSaysWhatItWaitsForIsWaitedFor) {
  (void)Break(5);
  now_ += 20s;
  (void)Send(JoinAnswered{JoinAnswer{.waits_for = "1 of 2 pods have not started"}});
  now_ += 2s;
  EXPECT_EQ(Find<StartForming>(Send(Tick{})), nullptr);
}

TEST_F(SupervisionWithoutHostTest, EntersTheNextFormationOfTheSameRound) {
  (void)Break(5);
  (void)RefuseJoin();
  const Actions actions = FormAgain(6);
  const auto& place = std::get<protocol::RankAssignment>(Find<SendToRank>(actions)->message);
  EXPECT_EQ(place.round, 6) << "to a rank each formation is a round";
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world, 2);
  EXPECT_EQ(place.store_host, "10.0.0.9");
  EXPECT_EQ(place.store_port, 71);
  EXPECT_NE(Find<ForgetReports>(actions), nullptr) << "of the formation before";
  EXPECT_EQ(Find<StartWatch>(actions)->request.round, 5) << "the host's number stays";
  EXPECT_EQ(Find<StartFormationWatch>(actions)->request.formation, 6);
  (void)Say(protocol::Progress{.round = 6, .step = 10});
  EXPECT_EQ(supervision_.CurrentHeartbeat().round, 5);
  EXPECT_EQ(supervision_.CurrentHeartbeat().progress.round, 5);
}

TEST_F(SupervisionWithoutHostTest, IsNotifiedByTheMembersThatAFormationIsOver) {
  (void)Break(5);
  (void)RefuseJoin();
  (void)FormAgain(6);
  const Result<protocol::WatchAnswer> over = protocol::WatchAnswer{.over = true};
  EXPECT_EQ(Find<SendToRank>(Send(FormationWatchAnswered{5, over})), nullptr) << "the one before";
  const Actions actions = Send(FormationWatchAnswered{6, over});
  EXPECT_EQ(std::get<protocol::RoundOver>(Find<SendToRank>(actions)->message).round, 6);
}

TEST_F(SupervisionWithoutHostTest, TheHostDecidesOnceItIsBack) {
  (void)Break(5);
  (void)RefuseJoin();
  const Actions actions = Send(HeartbeatAnswered{0, protocol::WatchAnswer{}});
  EXPECT_NE(Find<StopAskingMembers>(actions), nullptr);
  EXPECT_EQ(Find<SendToRank>(FormAgain(6)), nullptr) << "an answer that was on its way";
}

TEST_F(SupervisionWithoutHostTest, JoinsTheHostWithTheNewestFormation) {
  (void)Break(5);
  (void)RefuseJoin();
  (void)FormAgain(6);
  EXPECT_EQ(Find<StartJoin>(Break(6))->request.last_round, 6);
}

TEST_F(SupervisionWithoutHostTest, TellsTheHostAfterwardsWhatHappened) {
  now_ += 3s;
  (void)Say(protocol::Progress{.round = 5, .step = 9});
  now_ += 2s;
  (void)Send(RankExited{.signal = SIGKILL});
  (void)Say(protocol::Ready{.step = -1, .store_port = 8});
  (void)RefuseJoin();
  now_ += 1s;
  (void)FormAgain(6);
  EXPECT_TRUE(supervision_.CurrentHeartbeat().repairs.empty()) << "not before the next step";
  now_ += 1s;
  (void)Say(protocol::Progress{.round = 6, .step = 10});
  const std::vector<protocol::Repair> repairs = supervision_.CurrentHeartbeat().repairs;
  ASSERT_EQ(repairs.size(), 1U);
  EXPECT_EQ(repairs[0].formation, 5);
  EXPECT_EQ(repairs[0].failure.ranks, std::vector<int64_t>{1});
  EXPECT_EQ(repairs[0].failure.exit_code, 128 + SIGKILL);
  EXPECT_EQ(repairs[0].unfinished_seconds, 2);
  EXPECT_EQ(repairs[0].seconds, 2);
  EXPECT_EQ(repairs[0].recovered_in, 6);
}

TEST_F(SupervisionWithoutHostTest, LosesNoWorkWithAFormationThatMadeNoStep) {
  now_ += 3s;
  (void)Send(RankExited{.signal = SIGKILL});
  (void)Say(protocol::Ready{.step = -1, .store_port = 8});
  (void)RefuseJoin();
  (void)FormAgain(6);
  (void)Say(protocol::Progress{.round = 6, .step = 1});
  const std::vector<protocol::Repair> repairs = supervision_.CurrentHeartbeat().repairs;
  ASSERT_EQ(repairs.size(), 1U);
  EXPECT_EQ(repairs[0].unfinished_seconds, 0);
}

TEST_F(SupervisionWithoutHostTest, DoesNotMeasureARepairThatItTookNoPartIn) {
  (void)Send(RankExited{.signal = SIGKILL});
  (void)Say(protocol::Ready{.step = -1, .store_port = 8});
  (void)RefuseJoin();
  now_ += 3s;
  (void)FormAgain(7);  // the others went on in formation 6
  (void)Say(protocol::Progress{.round = 7, .step = 10});
  const std::vector<protocol::Repair> repairs = supervision_.CurrentHeartbeat().repairs;
  ASSERT_EQ(repairs.size(), 1U);
  EXPECT_EQ(repairs[0].failure.ranks, std::vector<int64_t>{1});
  EXPECT_EQ(repairs[0].seconds, 0);
}

TEST_F(SupervisionWithoutHostTest, ReportsTheDeathThatBrokeTheFormationAndNoLaterOne) {
  (void)Send(RankExited{.signal = SIGKILL});
  (void)Send(RankExited{.exit_code = 1});  // it did not even start
  (void)Say(protocol::Ready{.step = -1, .store_port = 8});
  (void)RefuseJoin();
  (void)FormAgain(6);
  (void)Say(protocol::Progress{.round = 6, .step = 10});
  const std::vector<protocol::Repair> repairs = supervision_.CurrentHeartbeat().repairs;
  ASSERT_EQ(repairs.size(), 1U);
  EXPECT_EQ(repairs[0].failure.exit_code, 128 + SIGKILL);
}

TEST_F(SupervisionWithoutHostTest, BacksOffFromMembersThatDoNotAnswerAndBeginsAgainTheNextTime) {
  const Error away{ErrorCode::kUnavailable, "connection refused"};
  const auto form_again = [&] { return Find<StartForming>(Send(FormAnswered{away}))->delay; };
  const auto watch_again = [&] {
    return Find<StartFormationWatch>(Send(FormationWatchAnswered{6, away}))->delay;
  };
  (void)Break(5);
  EXPECT_EQ(Find<StartForming>(RefuseJoin())->delay, 0ms);
  for (const auto delay : {50ms, 100ms}) EXPECT_EQ(form_again(), delay);
  EXPECT_EQ(Find<StartForming>(Send(FormAnswered{protocol::FormAnswer{}}))->delay, 0ms)
      << "not all are there";
  (void)Send(HeartbeatAnswered{0, protocol::WatchAnswer{}});
  (void)RefuseJoin();
  EXPECT_EQ(form_again(), 50ms);
  EXPECT_EQ(Find<StartFormationWatch>(FormAgain(6))->delay, 0ms);
  for (const auto delay : {50ms, 100ms}) EXPECT_EQ(watch_again(), delay);
  EXPECT_EQ(Find<StartFormationWatch>(Send(FormationWatchAnswered{6, protocol::WatchAnswer{}}))->delay, 0ms);
  (void)Send(HeartbeatAnswered{5, protocol::WatchAnswer{}});
  (void)Send(HeartbeatAnswered{5, away});
  EXPECT_EQ(watch_again(), 50ms);
}

TEST_F(SupervisionWithoutHostTest, RepeatsTheNewestRepairs) {
  constexpr auto kRepairs = static_cast<int64_t>(protocol::kKeptRepairs) + 1;
  for (int64_t formation = 5; formation < 5 + kRepairs; ++formation) {
    (void)Break(formation);
    (void)RefuseJoin();
    (void)FormAgain(formation + 1);
    (void)Say(protocol::Progress{.round = formation + 1, .step = formation});
  }
  std::vector<int64_t> formations;
  for (const protocol::Repair& repair : supervision_.CurrentHeartbeat().repairs)
    formations.push_back(repair.formation);
  std::vector<int64_t> newest(protocol::kKeptRepairs);
  std::iota(newest.begin(), newest.end(), 6);
  EXPECT_EQ(formations, newest);
}

TEST_F(SupervisionWithoutHostTest, AnErrorThatComesBackInTheNextFormationIsTheUsers) {
  (void)Say(protocol::Broken{.round = 5, .reason = "bad shape", .failed_step = 9});
  (void)Say(protocol::Ready{.step = 9});
  (void)RefuseJoin();
  (void)FormAgain(6);
  const Actions actions = Say(protocol::Broken{.round = 6, .reason = "bad shape", .failed_step = 9});
  EXPECT_EQ(Find<Exit>(actions)->code, static_cast<int>(ExitCode::kUserError));
}

TEST_F(SupervisionWithoutHostTest, ThePodOfRankZeroHostsTheFormations) {
  EXPECT_EQ(Find<HostFormations>(entered_)->round, 0);
  (void)Break(5);
  Enter(0);
  EXPECT_EQ(Find<HostFormations>(entered_)->round, 5);
  EXPECT_EQ(Find<HostFormations>(entered_)->world, 2);
}

TEST_F(SupervisionWithoutHostTest, ANewPodHasNoMembersToAsk) {
  Supervision newcomer(SettingsOf(1));
  (void)newcomer.Start(now_);
  (void)newcomer.On(RankMessage{0, protocol::Ready{}}, now_);
  now_ += 5s;
  EXPECT_EQ(Find<StartForming>(newcomer.On(Tick{}, now_)), nullptr);
  EXPECT_EQ(Find<StartForming>(newcomer.On(JoinAnswered{Error{ErrorCode::kUnavailable, ""}}, now_)), nullptr);
}

}  // namespace
}  // namespace lockstep::launch

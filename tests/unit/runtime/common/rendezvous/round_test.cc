#include "tests/unit/runtime/common/rendezvous/round_fixture.h"

#include <utility>

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using protocol::LeaveMode;
using protocol::LeaveReason;

TEST_F(RoundTest, ClosesAtOnceWhenAllExpectedMembersAreIn) {
  Join(2);
  Join(0);
  EXPECT_FALSE(round_.running().has_value());
  Join(1);
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1", "pod-2"}));
  EXPECT_EQ(round_.running()->number, 1);
  EXPECT_EQ(round_.running()->store_host, "pod-0");
  EXPECT_EQ(round_.running()->store_port, 100);
}

TEST_F(RoundTest, WaitsTheLastCallForMembersWhoseDeathWasNotObserved) {
  Join(0);
  now_ += 2'900ms;
  round_.Tick(now_);
  EXPECT_FALSE(round_.running().has_value());
  now_ += 100ms;
  round_.Tick(now_);
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(round_.running()->world, 1);
}

TEST_F(RoundTest, ADeadRankCostsNoWaiting) {
  FormFirstRound();
  (void)round_.Leave({.member = MemberOf(1), .round = 1, .reason = LeaveReason::kRankDied}, now_);
  ASSERT_FALSE(round_.running().has_value());
  EXPECT_EQ(round_.last_ending()->mode, LeaveMode::kAbort);
  Join(2, 10);
  EXPECT_FALSE(round_.running().has_value()) << "pod-0 still lives and holds state";
  Join(0, 9);
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-2"}));
  EXPECT_EQ(round_.running()->number, 2);
  EXPECT_EQ(round_.running()->newest_step, 10);
}

TEST_F(RoundTest, SurvivorsKeepTheirOrderAndNewcomersFollow) {
  FormFirstRound();
  round_.PodGone({.pod_uid = "pod-0-uid", .reason = "deleted"}, now_);
  Join(2, 5);
  Join(1, 5);
  ASSERT_EQ(Members(), (std::vector<std::string>{"pod-1", "pod-2"}));
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(0, "new-uid")), now_), Admission::kAccepted);
  round_.Tick(now_);
  ASSERT_FALSE(round_.running().has_value());
  EXPECT_EQ(round_.last_ending()->mode, LeaveMode::kYield);
  EXPECT_EQ(round_.last_ending()->cause, std::nullopt);
  Join(1, 6);
  Join(2, 6);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-1", "pod-2", "pod-0"}));
}

TEST_F(RoundTest, ALivingMemberOfTheLastRoundIsWaitedForBeyondTheLastCall) {
  FormFirstRound();
  (void)round_.Broken({.member = MemberOf(1), .round = 1, .reason = "collective failed"}, now_);
  Join(1, 3);
  Join(0, 3);
  for (int i = 0; i < 10; ++i) {
    now_ += 2s;
    for (int slot : {0, 1, 2}) Beat(slot);
    round_.Tick(now_);
    ASSERT_FALSE(round_.running().has_value());
  }
  Join(2, 3);
  EXPECT_TRUE(round_.running().has_value());
}

TEST_F(RoundTest, SilenceCountsAsADeath) {
  FormFirstRound();
  now_ += 8s;
  Beat(0);
  Beat(1);
  now_ += 3s;
  round_.Tick(now_);
  ASSERT_FALSE(round_.running().has_value());
  ASSERT_EQ(round_.last_ending()->departures.size(), 1U);
  EXPECT_EQ(round_.last_ending()->departures[0].pod, "pod-2");
  EXPECT_EQ(round_.last_ending()->departures[0].detection_seconds, 11);
}

TEST_F(RoundTest, AMemberThatAsksAgainOrReportsABreakIsNotSilent) {
  FormFirstRound();
  now_ += 8s;
  for (int slot : {0, 2}) Beat(slot);
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(1)), now_), Admission::kAccepted) << "its answer was lost";
  now_ += 3s;
  round_.Tick(now_);
  ASSERT_TRUE(round_.running().has_value());
  now_ += 5s;
  for (int slot : {0, 2}) Beat(slot);
  (void)round_.Broken({.member = MemberOf(1), .round = 1, .reason = "collective failed"}, now_);
  now_ += 3s;
  round_.Tick(now_);
  EXPECT_TRUE(round_.last_ending()->departures.empty());
}

TEST_F(RoundTest, ReportsOfOtherMembersAreAcceptedButNotThoseOfAReplacedPod) {
  FormFirstRound();
  const auto broken = [&](int slot) { return round_.Broken({.member = MemberOf(slot), .round = 1}, now_); };
  EXPECT_EQ(broken(1), Admission::kAccepted);
  EXPECT_EQ(broken(2), Admission::kAccepted) << "the round is over already";
  EXPECT_EQ(broken(7), Admission::kAccepted) << "the host was restarted and does not know it yet";
  EXPECT_EQ(round_.Leave({.member = MemberOf(7), .round = 1}, now_), Admission::kAccepted);
  EXPECT_EQ(round_.Leave({.member = MemberOf(2), .round = 1}, now_), Admission::kAccepted);
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(1, "second")), now_), Admission::kAccepted);
  EXPECT_EQ(broken(1), Admission::kEvicted);
}

TEST_F(RoundTest, RecordsWhichRanksDeparted) {
  FormFirstRound();
  for (int slot : {0, 2}) {
    (void)round_.Leave({.member = MemberOf(slot), .round = 1, .reason = LeaveReason::kRankDied}, now_);
  }
  const std::vector<Departure>& departures = round_.last_ending()->departures;
  ASSERT_EQ(departures.size(), 2U);
  EXPECT_EQ(departures[0].ranks, std::vector<int64_t>{0});
  EXPECT_EQ(departures[1].ranks, std::vector<int64_t>{2});
}

TEST_F(RoundTest, ThePodsEndDoesNotReplaceWhatItsMemberReported) {
  FormFirstRound();
  (void)round_.Leave({.member = MemberOf(1),
                      .round = 1,
                      .reason = LeaveReason::kRankDied,
                      .detail = "rank process 0 does not answer",
                      .failure = {.cause = protocol::FailureCause::kHang,
                                  .ranks = {1},
                                  .exit_code = 137,
                                  .detection_seconds = 7,
                                  .last_lines = "stack"}},
                     now_);
  round_.PodGone({.pod_uid = "pod-1-uid", .reason = "exit code 1", .exit_code = 1, .node = "node-1"}, now_);
  const Departure& departure = round_.last_ending()->departures.at(0);
  EXPECT_EQ(departure.cause, protocol::FailureCause::kHang);
  EXPECT_EQ(departure.reason, "rank process 0 does not answer");
  EXPECT_EQ(departure.exit_code, 137);
  EXPECT_EQ(departure.detection_seconds, 7);
  EXPECT_EQ(departure.last_lines, "stack");
  EXPECT_EQ(departure.node, "node-1");
}

TEST_F(RoundTest, ThePodsEndExplainsADepartureWithoutAnExitCode) {
  FormFirstRound();
  for (int slot : {1, 2}) {
    (void)round_.Leave({.member = MemberOf(slot), .round = 1, .detail = "asked to stop"}, now_);
  }
  round_.PodGone({.pod_uid = "pod-1-uid", .reason = "deleted"}, now_);
  round_.PodGone({.pod_uid = "pod-2-uid",
                  .reason = "exit code 6",
                  .cause = protocol::FailureCause::kHang,
                  .exit_code = 6},
                 now_);
  const std::vector<Departure>& departures = round_.last_ending()->departures;
  ASSERT_EQ(departures.size(), 2U);
  EXPECT_EQ(departures[0].reason, "asked to stop") << "its end says no more";
  EXPECT_EQ(departures[1].reason, "exit code 6");
  EXPECT_EQ(departures[1].cause, protocol::FailureCause::kHang);
  EXPECT_EQ(departures[1].exit_code, 6);
}

TEST_F(RoundTest, AFormerMemberThatStandsByDepartsFromNoRound) {
  FormFirstRound();
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 2, .standby_members = 1});
  (void)round_.Broken({.member = MemberOf(1), .round = 1, .reason = "collective failed"}, now_);
  for (int slot : {0, 1, 2}) Join(slot);
  ASSERT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1"}));
  round_.PodGone({.pod_uid = "pod-2-uid"}, now_);
  EXPECT_TRUE(round_.last_ending()->departures.empty());
}

TEST_F(RoundTest, ANewcomerOfARoundThatIsNotFullIsNoStandby) {
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 4, .grow_delay = 30s});
  for (int slot : {0, 1}) Join(slot);
  now_ += 3s;
  round_.Tick(now_);
  ASSERT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1"}));
  Join(3);
  ASSERT_TRUE(round_.running().has_value()) << "the grow delay has not passed";
  (void)round_.Broken({.member = MemberOf(0), .round = 1, .reason = "collective failed"}, now_);
  for (int slot : {2, 0, 1}) Join(slot);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1", "pod-2", "pod-3"}));
}

TEST_F(RoundTest, DeletedPodsAndOlderIncarnationsNeverReenter) {
  FormFirstRound();
  round_.PodGone({.pod_uid = "pod-1-uid", .reason = "deleted"}, now_);
  EXPECT_EQ(round_.Join(RequestOf(MemberOf(1)), now_), Admission::kEvicted);
  EXPECT_EQ(round_.Heartbeat({.member = MemberOf(1)}, now_), Admission::kEvicted);
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(2, "", "2")), now_), Admission::kAccepted);
  EXPECT_EQ(round_.Join(RequestOf(MemberOf(2, "", "1")), now_), Admission::kEvicted);
}

TEST_F(RoundTest, APodThatWasReplacedNeverReenters) {
  FormFirstRound();
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(1, "second")), now_), Admission::kAccepted);
  EXPECT_EQ(round_.Join(RequestOf(MemberOf(1)), now_), Admission::kEvicted);
  EXPECT_EQ(round_.Heartbeat({.member = MemberOf(1)}, now_), Admission::kEvicted);
  EXPECT_EQ(round_.SlotOf("second"), 1) << "it keeps the slot";
}

TEST_F(RoundTest, APodThatWasReplacedDoesNotCompleteTheJob) {
  FormFirstRound();
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(1, "second")), now_), Admission::kAccepted);
  EXPECT_EQ(round_.Leave({.member = MemberOf(1), .round = 1, .reason = LeaveReason::kCompleted}, now_),
            Admission::kEvicted);
  EXPECT_FALSE(round_.completed());
}

TEST_F(RoundTest, ALostAnswerIsGivenAgainWithoutBreakingTheRound) {
  FormFirstRound();
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(1), -1, 0), now_), Admission::kAccepted);
  EXPECT_TRUE(round_.running().has_value());
}

TEST_F(RoundTest, AMemberThatAsksForAnotherRoundHasBrokenThisOne) {
  FormFirstRound();
  Join(1);
  ASSERT_FALSE(round_.running().has_value());
  EXPECT_EQ(round_.last_ending()->mode, LeaveMode::kAbort);
  EXPECT_EQ(round_.last_ending()->cause, protocol::FailureCause::kInfrastructure);
  EXPECT_EQ(round_.last_ending()->reason, "pod-1 left the round without saying why");
}

TEST_F(RoundTest, AStoppingPodLetsTheStepFinish) {
  FormFirstRound();
  (void)round_.Leave({.member = MemberOf(2), .round = 1, .reason = LeaveReason::kStopping}, now_);
  EXPECT_EQ(round_.last_ending()->mode, LeaveMode::kYield);
  EXPECT_EQ(round_.last_ending()->cause, protocol::FailureCause::kPreemption);
}

TEST_F(RoundTest, TheOthersWaitForAMemberThatHandsItsPartOver) {
  FormFirstRound();
  (void)round_.Leave({.member = MemberOf(2), .round = 1, .reason = LeaveReason::kHandingOver}, now_);
  EXPECT_EQ(round_.last_ending()->mode, LeaveMode::kYield);
  EXPECT_EQ(round_.last_ending()->cause, protocol::FailureCause::kPreemption);
  for (int slot : {0, 1}) Join(slot, 4);
  EXPECT_FALSE(round_.running().has_value()) << "it may not have handed it over";
  Join(2, 4);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1", "pod-2"}));
  (void)round_.Leave({.member = MemberOf(2), .round = 1, .reason = LeaveReason::kHandingOver}, now_);
  EXPECT_TRUE(round_.running().has_value()) << "a late report, of the round before";
  (void)round_.Leave({.member = MemberOf(2), .round = 2, .reason = LeaveReason::kHandingOver}, now_);
  (void)round_.Leave({.member = MemberOf(2), .round = 2, .reason = LeaveReason::kStopping}, now_);
  for (int slot : {0, 1}) Join(slot, 5);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1"})) << "it has left";
}

TEST_F(RoundTest, FewerThanTheMinimumNeverFormARound) {
  round_.SetSettings({.min_members = 2, .max_members = 4, .expected_members = 3});
  Join(0);
  for (int i = 0; i < 100; ++i) {
    now_ += 1s;
    Beat(0);
    round_.Tick(now_);
  }
  EXPECT_FALSE(round_.running().has_value());
}

TEST_F(RoundTest, GrowthWaitsForOtherNewcomers) {
  FormFirstRound();
  round_.SetSettings({.min_members = 1, .max_members = 8, .expected_members = 5, .grow_delay = 30s});
  Join(3);
  EXPECT_TRUE(round_.running().has_value());
  Join(4);
  EXPECT_FALSE(round_.running().has_value()) << "all expected members are here: no reason to wait longer";
}

TEST_F(RoundTest, TheEndOfAReplacedPodAffectsNoOtherMember) {
  FormFirstRound();
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(1, "second")), now_), Admission::kAccepted);
  for (int slot : {0, 2}) Join(slot);
  ASSERT_EQ(round_.running()->number, 2);
  EXPECT_EQ(round_.SlotOf("pod-1-uid"), std::nullopt);
  EXPECT_EQ(round_.SlotOf("second"), 1);
  round_.PodGone({.pod_uid = "pod-1-uid", .reason = "deleted"}, now_);
  EXPECT_TRUE(round_.running().has_value());
  round_.PodGone({.pod_uid = "second", .reason = "deleted"}, now_);
  EXPECT_FALSE(round_.running().has_value());
}

TEST_F(RoundTest, AShorterTimeoutCountsForThoseAlreadyIn) {
  FormFirstRound();
  round_.SetSettings(
      {.min_members = 1, .max_members = 4, .expected_members = 3, .heartbeat_timeout = 2'000ms});
  now_ += 1'500ms;
  for (int slot : {0, 2}) Beat(slot);
  now_ += 1'000ms;
  round_.Tick(now_);
  ASSERT_TRUE(round_.last_ending().has_value());
  EXPECT_EQ(round_.last_ending()->reason, "pod-1: no heartbeat");
}

TEST_F(RoundTest, ANewExpectationCountsEarlierMembers) {
  Join(0);
  Join(1);
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 4});
  Join(3);
  EXPECT_FALSE(round_.running().has_value());
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 2});
  round_.Tick(now_);
  EXPECT_TRUE(round_.running().has_value());
}

TEST_F(RoundTest, TakesOverARunningRoundAfterARestartOfItsHost) {
  Round restarted(JobSettings{.min_members = 1, .max_members = 4, .expected_members = 3, .first_round = 8});
  for (int slot : {1, 0, 2}) {
    (void)restarted.Heartbeat({.member = MemberOf(slot), .round = 7, .world = 3, .first_rank = slot}, now_);
  }
  restarted.Tick(now_);
  ASSERT_TRUE(restarted.running().has_value());
  EXPECT_EQ(restarted.running()->number, 7);
  round_ = restarted;
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1", "pod-2"})) << "in rank order";
  (void)round_.Leave({.member = MemberOf(1), .round = 7, .reason = LeaveReason::kRankDied}, now_);
  Join(0, 5);
  Join(2, 5);
  EXPECT_EQ(round_.running()->number, 8) << "numbers only rise";
}

TEST_F(RoundTest, DoesNotTakeOverARoundThatItSawEnd) {
  round_ = Round(JobSettings{.min_members = 1, .max_members = 4, .expected_members = 3, .first_round = 8});
  (void)round_.Heartbeat({.member = MemberOf(1), .round = 7, .world = 3, .first_rank = 1}, now_);
  (void)round_.Leave({.member = MemberOf(1), .round = 7, .reason = LeaveReason::kRankDied}, now_);
  // Messages that the others sent before they knew.
  (void)round_.Heartbeat({.member = MemberOf(0), .round = 7, .world = 3, .first_rank = 0}, now_);
  EXPECT_FALSE(round_.running().has_value());
}

TEST_F(RoundTest, WaitsAfterARestartOfItsHostForTheHeartbeatsOfARoundThatMayRun) {
  round_ = Round(JobSettings{.min_members = 1, .max_members = 4, .expected_members = 3, .first_round = 8});
  Join(0);
  now_ += 9s;
  Beat(0);
  round_.Tick(now_);
  EXPECT_FALSE(round_.running().has_value()) << "the last call of 3 s is too short for a heartbeat";
  now_ += 1s;
  round_.Tick(now_);
  EXPECT_TRUE(round_.running().has_value());
}

TEST_F(RoundTest, ContinuesAboveTheFormationsThatMembersMadeWithoutAHost) {
  FormFirstRound();
  (void)round_.Broken({.member = MemberOf(1), .round = 1, .reason = "collective failed"}, now_);
  for (int slot : {0, 1, 2}) (void)round_.Join(RequestOf(MemberOf(slot), 5, slot == 1 ? 6 : 1), now_);
  round_.Tick(now_);
  EXPECT_EQ(round_.running()->number, 7);
}

TEST_F(RoundTest, PassesOnWhereTheFirstRankListensAndWhoHoldsState) {
  for (int slot : {0, 1, 2}) {
    protocol::JoinRequest request = RequestOf(MemberOf(slot), slot == 1 ? 0 : -1);
    request.nproc = 2;
    request.form_port = 200 + slot;
    request.form_key = "key-" + std::to_string(slot);
    (void)round_.Join(request, now_);
  }
  round_.Tick(now_);
  const ClosedRound& round = *round_.running();
  EXPECT_EQ(round.form_port, 200);
  EXPECT_EQ(round.form_key, "key-0");
  EXPECT_EQ(round.newest_step, 0);
  EXPECT_EQ(round.world, 6);
  for (int slot : {0, 1, 2}) {
    const Peer& peer = round.peers.at(static_cast<std::size_t>(slot));
    EXPECT_EQ(peer.pod_uid, MemberOf(slot).pod_uid);
    EXPECT_EQ(peer.slot, slot);
    EXPECT_EQ(peer.first_rank, 2 * slot);
    EXPECT_EQ(peer.nproc, 2);
    EXPECT_EQ(peer.holds_state, slot == 1);
    EXPECT_EQ(round_.FirstRankOf(slot), 2 * slot);
  }
  EXPECT_EQ(round_.FirstRankOf(3), std::nullopt);
  (void)round_.Leave({.member = MemberOf(1), .round = 1, .detail = "asked to stop"}, now_);
  EXPECT_EQ(round_.last_ending()->departures.at(0).ranks, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(round_.last_ending()->members, 3);
  EXPECT_EQ(round_.last_ending()->reason, "pod-1: asked to stop");
}

TEST_F(RoundTest, SaysHowManyNewcomersWait) {
  FormFirstRound();
  round_.SetSettings({.min_members = 1, .max_members = 8, .expected_members = 4});
  Join(3);
  EXPECT_EQ(round_.last_ending()->reason, "1 newcomer waiting");
  for (int slot : {0, 1, 2}) Join(slot);
  round_.SetSettings({.min_members = 1, .max_members = 8, .expected_members = 6, .grow_delay = 30s});
  for (int slot : {4, 5}) Join(slot);
  EXPECT_EQ(round_.last_ending()->reason, "2 newcomers waiting");
}

// A stopped host reads nothing while the clock advances.
TEST_F(RoundTest, AfterAPauseOfTheHostNoMemberCountsAsSilent) {
  Join(0);
  now_ += 60s;
  round_.ExtendTimeouts(60s);
  round_.Tick(now_);
  EXPECT_FALSE(round_.running().has_value()) << "the last call has not passed either";
  EXPECT_EQ(round_.waiting(), 1);
  now_ += 3s;
  round_.Tick(now_);
  EXPECT_TRUE(round_.running().has_value());
}

// A watcher asks for revisions newer than its own.
TEST_F(RoundTest, EachEventThatOthersMustLearnRaisesTheRevision) {
  int64_t known = round_.revision();
  const auto has_risen = [&] { return std::exchange(known, round_.revision()) < round_.revision(); };
  FormFirstRound();
  EXPECT_TRUE(has_risen()) << "a round begins";
  for (int slot : {0, 1, 2}) Beat(slot);
  EXPECT_FALSE(has_risen());
  Join(3);
  EXPECT_TRUE(has_risen()) << "one waits outside of it";
  (void)round_.Leave({.member = MemberOf(3), .reason = LeaveReason::kStopping}, now_);
  EXPECT_TRUE(has_risen()) << "and leaves";
  (void)round_.Broken({.member = MemberOf(1), .round = 1, .reason = "collective failed"}, now_);
  EXPECT_TRUE(has_risen()) << "the round ends";
  (void)round_.Leave({.member = MemberOf(1), .round = 1, .reason = LeaveReason::kRankDied}, now_);
  EXPECT_TRUE(has_risen()) << "one of its members is missing";
  round_.PodGone({.pod_uid = "pod-1-uid", .reason = "exit code 6", .exit_code = 6}, now_);
  EXPECT_TRUE(has_risen()) << "its end is known";
  round_.PodGone({.pod_uid = "pod-1-uid", .reason = "exit code 6", .exit_code = 6}, now_);
  EXPECT_FALSE(has_risen());
  (void)round_.Leave({.member = MemberOf(0), .round = 1, .reason = LeaveReason::kCompleted}, now_);
  EXPECT_TRUE(has_risen()) << "the job is complete";
}

TEST_F(RoundTest, OnceCompletedNothingFormsAgain) {
  FormFirstRound();
  (void)round_.Leave({.member = MemberOf(0), .round = 1, .reason = LeaveReason::kCompleted}, now_);
  EXPECT_TRUE(round_.completed());
  round_.PodGone({.pod_uid = "pod-1-uid", .reason = "ended"}, now_);
  round_.Tick(now_);
  EXPECT_EQ(round_.newest_number(), 1);
}

}  // namespace
}  // namespace lockstep::rendezvous

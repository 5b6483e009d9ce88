#include "runtime/common/rendezvous/round_changes.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using protocol::LeaveReason;

// A round of pods 0, 1 and 2 with two ranks each; the tests fail pod 1.
class RoundChangesTest : public ::testing::Test {
 protected:
  RoundChangesTest() {
    for (int slot : {0, 1, 2}) Join(slot);
  }

  static protocol::Member MemberOf(int slot, const std::string& life) {
    const std::string pod = "pod-" + std::to_string(slot);
    return {.pod = pod, .pod_uid = pod + life, .slot = slot, .incarnation = "1"};
  }
  void Join(int slot, const std::string& life = "", int64_t step = -1) {
    const protocol::JoinRequest request{
        .member = MemberOf(slot, life), .nproc = 2, .step = step, .last_round = round_.newest_number()};
    ASSERT_EQ(round_.Join(request, now_), Admission::kAccepted);
    Record();
  }
  void RankDies(int slot) {
    const protocol::RankFailure failure{.cause = protocol::FailureCause::kHang,
                                        .ranks = {2 * slot + 1},
                                        .exit_code = 137,
                                        .detection_seconds = 4,
                                        .last_lines = "killed"};
    (void)round_.Leave({.member = MemberOf(slot, ""),
                        .round = round_.newest_number(),
                        .reason = LeaveReason::kRankDied,
                        .detail = "rank process 1 hangs",
                        .failure = failure},
                       now_);
    Record();
  }
  void PodEnds(int slot, const PodEnd& end) {
    PodEnd ended = end;
    ended.pod_uid = MemberOf(slot, "").pod_uid;
    round_.PodGone(ended, now_);
    Record();
  }
  void Stop(int slot) {
    (void)round_.Leave(
        {.member = MemberOf(slot, ""), .reason = LeaveReason::kStopping, .detail = "on request"}, now_);
    Record();
  }
  // As JobEntry does.
  void Record() {
    round_.Tick(now_);
    if (!round_.last_ending().has_value()) return;
    RecordEnding(*round_.last_ending(), changes_);
    if (!round_.running().has_value() || round_.running()->number == recorded_) return;
    recorded_ = round_.running()->number;
    const bool is_full = static_cast<int>(round_.running()->peers.size()) >= round_.places();
    RecordClosing(*round_.last_ending(), *round_.running(), is_full, changes_);
  }
  const RoundChange& first() { return changes_.at(0); }

  SteadyTime now_ = SteadyTime(1h);
  Round round_{JobSettings{.min_members = 1, .max_members = 3, .expected_members = 3}};
  int64_t recorded_ = 0;
  std::vector<RoundChange> changes_;
};

TEST_F(RoundChangesTest, ARankThatCameBackInItsPodIsARespawn) {
  RankDies(1);
  for (int slot : {0, 2}) Join(slot);
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(first().level, RecoveryLevel::kMembership) << "so far the others continued without it";
  EXPECT_FALSE(first().is_repaired);
  Join(1);
  for (int slot : {0, 2}) Join(slot);
  EXPECT_EQ(first().level, RecoveryLevel::kRespawn);
  EXPECT_TRUE(first().is_repaired);
  EXPECT_EQ(changes_.at(1).cause, std::nullopt) << "letting it in again is no failure";
}

TEST_F(RoundChangesTest, ReportsTheFailureThatTheSupervisorReported) {
  RankDies(1);
  ASSERT_EQ(first().departures.size(), 1U);
  const Departure& departure = first().departures[0];
  EXPECT_EQ(departure.pod, "pod-1");
  EXPECT_EQ(departure.ranks, std::vector<int64_t>{3});
  EXPECT_EQ(departure.exit_code, 137);
  EXPECT_EQ(departure.detection_seconds, 4);
  EXPECT_EQ(departure.last_lines, "killed");
  EXPECT_EQ(first().cause, protocol::FailureCause::kHang);
  EXPECT_EQ(first().reason, "pod-1: rank process 1 hangs");
}

TEST_F(RoundChangesTest, ANewPodInTheSlotIsAReplacement) {
  PodEnds(1, {.reason = "exit code 1",
              .cause = protocol::FailureCause::kInfrastructure,
              .exit_code = 1,
              .node = "node-7"});
  EXPECT_EQ(first().departures.at(0).ranks, (std::vector<int64_t>{2, 3}))
      << "although they were not reported";
  EXPECT_EQ(first().departures.at(0).node, "node-7");
  for (int slot : {0, 2}) Join(slot);
  Join(1, "-new");
  for (int slot : {0, 2}) Join(slot);
  EXPECT_EQ(first().level, RecoveryLevel::kReplacePod);
}

TEST_F(RoundChangesTest, ABreakWithoutADeathIsAMembershipChange) {
  (void)round_.Broken({.member = MemberOf(0, ""), .round = 1, .reason = "connection reset"}, now_);
  for (int slot : {0, 1, 2}) Join(slot);
  EXPECT_EQ(first().level, RecoveryLevel::kMembership);
  EXPECT_TRUE(first().is_repaired);
  EXPECT_EQ(first().reason, "pod-0: connection reset");
}

TEST_F(RoundChangesTest, OneThatWasOnlyOutOfReachIsAMembershipChange) {
  now_ += 8s;
  for (int slot : {0, 2}) (void)round_.Heartbeat({.member = MemberOf(slot, "")}, now_);
  now_ += 3s;
  Record();
  ASSERT_EQ(changes_.size(), 1U);
  EXPECT_EQ(first().departures.at(0).detection_seconds, 11);
  for (int slot : {0, 2}) Join(slot);
  Join(1, "", 7);
  for (int slot : {0, 2}) Join(slot);
  EXPECT_TRUE(first().is_repaired);
  EXPECT_EQ(first().level, RecoveryLevel::kMembership);
}

TEST_F(RoundChangesTest, WithoutASurvivorOnlyACheckpointIsLeft) {
  for (int slot : {0, 1, 2}) RankDies(slot);
  for (int slot : {0, 1, 2}) Join(slot);
  EXPECT_EQ(first().departures.size(), 3U);
  EXPECT_EQ(first().level, RecoveryLevel::kCheckpoint);
}

TEST_F(RoundChangesTest, LearnsWhoDiedAfterACollectiveFailed) {
  (void)round_.Broken({.member = MemberOf(0, ""), .round = 1, .reason = "connection reset"}, now_);
  Join(0);
  EXPECT_EQ(first().reason, "pod-0: connection reset");
  RankDies(1);
  EXPECT_EQ(changes_.size(), 1U);
  EXPECT_EQ(first().cause, protocol::FailureCause::kHang);
  EXPECT_EQ(first().reason, "pod-1: rank process 1 hangs");
}

TEST_F(RoundChangesTest, APodsEndSaysWhyItStopped) {
  Stop(1);
  EXPECT_EQ(first().cause, protocol::FailureCause::kPreemption);
  PodEnds(1, {.reason = "exit code 1: gave up",
              .cause = protocol::FailureCause::kInfrastructure,
              .exit_code = 1,
              .node = "node-7"});
  EXPECT_EQ(first().cause, protocol::FailureCause::kInfrastructure);
  EXPECT_EQ(first().departures.size(), 1U);
  EXPECT_EQ(first().departures[0].exit_code, 1);
}

TEST_F(RoundChangesTest, OneThatDiesBeforeTheNextRoundFormsBelongsToTheSameChange) {
  RankDies(1);
  Join(0);
  PodEnds(0, {.reason = "exit code 137"});
  Join(2);
  EXPECT_EQ(changes_.size(), 1U);
  EXPECT_EQ(first().departures.size(), 2U);
}

TEST_F(RoundChangesTest, KeepsTheNewestTenAndNamesThreeOfMany) {
  for (int i = 0; i < 11; ++i) {
    (void)round_.Broken({.member = MemberOf(0, ""), .round = round_.newest_number()}, now_);
    for (int slot : {0, 1, 2}) Join(slot);
  }
  EXPECT_EQ(changes_.size(), 10U);
  EXPECT_EQ(changes_.back().round, 11);
  Ending ending{.round = 12, .members = 5};
  for (const char* pod : {"a", "b", "c", "d", "e"}) {
    ending.departures.push_back({.pod = pod, .pod_uid = pod, .reason = "gone"});
  }
  RecordEnding(ending, changes_);
  EXPECT_EQ(changes_.back().reason, "a: gone; b: gone; c: gone; and 2 more");
}

TEST_F(RoundChangesTest, RecordsRepairsThatMembersMadeByThemselves) {
  const protocol::Repair seen{
      .formation = 1, .reason = "connection reset", .unfinished_seconds = 2, .seconds = 3, .recovered_in = 2};
  protocol::Repair died = seen;
  died.reason = "rank process 0 was ended by signal 9 (SIGKILL)";
  died.failure = {.ranks = {3}, .exit_code = 137};
  EXPECT_TRUE(RecordRepair(MemberOf(0, ""), seen, changes_));
  EXPECT_EQ(first().reason, "pod-0: connection reset");
  EXPECT_TRUE(RecordRepair(MemberOf(1, ""), died, changes_)) << "this says who";
  EXPECT_FALSE(RecordRepair(MemberOf(1, ""), died, changes_)) << "reported again";
  EXPECT_FALSE(RecordRepair(MemberOf(2, ""), seen, changes_));
  ASSERT_EQ(changes_.size(), 1U);
  EXPECT_EQ(first().round, 1);
  EXPECT_EQ(first().departures[0].ranks, std::vector<int64_t>{3});
  EXPECT_EQ(first().departures[0].exit_code, 137);
  EXPECT_EQ(first().reason, "pod-1: rank process 0 was ended by signal 9 (SIGKILL)");
  EXPECT_EQ(first().level, RecoveryLevel::kRespawn);
  EXPECT_TRUE(first().is_repaired);
  EXPECT_EQ(first().recovery_seconds, 3);
  EXPECT_EQ(first().recovered_in, 2);
  EXPECT_EQ(first().unfinished_seconds, 2);
  EXPECT_FALSE(first().ended.has_value()) << "no host saw it";
}

TEST_F(RoundChangesTest, BelievesTheMembersWhereTheHostMeasuredItsOwnPause) {
  RankDies(1);
  for (int slot : {0, 1, 2}) Join(slot);
  changes_[0].recovery_seconds = 40;
  const auto says = [&](double seconds) {
    return RecordRepair(MemberOf(0, ""), {.formation = 1, .seconds = seconds}, changes_);
  };
  EXPECT_FALSE(says(40.1)) << "the same, as far as messages allow to say";
  EXPECT_TRUE(says(2));
  EXPECT_EQ(first().recovery_seconds, 2);
  EXPECT_TRUE(says(3)) << "one that waited for longer";
  EXPECT_FALSE(says(2)) << "both say so in each heartbeat";
  EXPECT_EQ(first().recovery_seconds, 3);
}

TEST_F(RoundChangesTest, AMemberThatWasNotInTheNextRoundMeasuresNothing) {
  const protocol::Repair late{.formation = 1, .failure = {.ranks = {3}, .exit_code = 137}};
  EXPECT_TRUE(RecordRepair(MemberOf(1, ""), late, changes_));
  EXPECT_EQ(first().recovery_seconds, 0);
  EXPECT_TRUE(RecordRepair(MemberOf(0, ""), {.formation = 1, .seconds = 0.5, .recovered_in = 2}, changes_));
  EXPECT_EQ(first().recovery_seconds, 0.5);
  EXPECT_EQ(first().recovered_in, 2);
  EXPECT_FALSE(RecordRepair(MemberOf(1, ""), late, changes_));
  EXPECT_EQ(first().recovery_seconds, 0.5);
}

TEST_F(RoundChangesTest, WhatTheHostSawOfABreakStays) {
  RankDies(1);
  for (int slot : {0, 1, 2}) Join(slot);
  const RoundChange seen = first();
  EXPECT_FALSE(
      RecordRepair(MemberOf(1, ""), {.formation = 1, .failure = {.ranks = {3}}, .seconds = 3}, changes_));
  EXPECT_EQ(first(), seen);
}

TEST_F(RoundChangesTest, AnOldRepairThatIsReportedAgainIsIgnored) {
  const protocol::Repair repair{.formation = 1, .seconds = 1};
  EXPECT_TRUE(RecordRepair(MemberOf(0, ""), repair, changes_));
  for (int64_t formation = 2; formation <= 11; ++formation)
    EXPECT_TRUE(RecordRepair(MemberOf(0, ""), {.formation = formation}, changes_));
  EXPECT_EQ(changes_.size(), 10U);
  EXPECT_FALSE(RecordRepair(MemberOf(0, ""), repair, changes_));
  EXPECT_EQ(changes_.front().round, 2);
}

}  // namespace
}  // namespace lockstep::rendezvous

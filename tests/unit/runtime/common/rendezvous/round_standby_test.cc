// Standbys, and jobs whose size changes.
#include "tests/unit/runtime/common/rendezvous/round_fixture.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using protocol::LeaveMode;
using protocol::LeaveReason;

// ---- standbys: three places, four pods

class StandbyTest : public RoundTest {
 protected:
  StandbyTest() {
    round_.SetSettings(
        {.min_members = 2, .max_members = 3, .expected_members = 3, .standby_members = 1, .grow_delay = 30s});
    for (int slot : {0, 1, 2, 3}) Join(slot);
  }
  void RankDies(int slot) {
    (void)round_.Leave(
        {.member = MemberOf(slot), .round = round_.newest_number(), .reason = LeaveReason::kRankDied}, now_);
    round_.Tick(now_);
  }
};

TEST_F(StandbyTest, WaitsOutsideOfAFullRound) {
  for (int i = 0; i < 100; ++i) {
    now_ += 5s;
    for (int slot : {0, 1, 2, 3}) Beat(slot);
    round_.Tick(now_);
  }
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(round_.newest_number(), 1);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1", "pod-2"}));
  EXPECT_EQ(round_.waiting(), 1);
}

TEST_F(StandbyTest, TakesTheDeadOnesPlaceAtOnceAndTheDeadOneStandsByNext) {
  RankDies(0);
  Join(1, 7);
  Join(2, 7);
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-1", "pod-2", "pod-3"})) << "survivors first";
  Join(0);
  now_ += 8s;
  for (int slot : {0, 1, 2, 3}) Beat(slot);
  round_.Tick(now_);
  EXPECT_EQ(round_.newest_number(), 2) << "the world is full: the round does not yield to it";
  RankDies(2);
  Join(1, 9);
  Join(3, 9);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-1", "pod-3", "pod-0"}));
}

TEST_F(StandbyTest, PrecedesANewcomerOfALowerSlot) {
  RankDies(0);
  Join(1, 7);
  Join(0);  // it was faster than the last survivor
  Join(2, 7);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-1", "pod-2", "pod-3"}));
}

TEST_F(StandbyTest, IsPromotedWhenTheJobGrows) {
  round_.SetSettings({.min_members = 2, .max_members = 4, .expected_members = 4, .standby_members = 1});
  round_.Tick(now_);
  ASSERT_FALSE(round_.running().has_value());
  EXPECT_EQ(round_.last_ending()->mode, LeaveMode::kYield);
  for (int slot : {0, 1, 2}) Join(slot, 3);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1", "pod-2", "pod-3"}));
}

TEST_F(StandbyTest, DoesNotKeepARestartedHostFromTheRunningRound) {
  Round restarted(JobSettings{.min_members = 1,
                              .max_members = 3,
                              .expected_members = 3,
                              .standby_members = 1,
                              .last_call = 0s,
                              .first_round = 8});
  (void)restarted.Join(RequestOf(MemberOf(3)), now_);
  for (int slot : {0, 1, 2}) {
    restarted.Tick(now_);
    (void)restarted.Heartbeat({.member = MemberOf(slot), .round = 7, .world = 3, .first_rank = slot}, now_);
  }
  restarted.Tick(now_);
  ASSERT_TRUE(restarted.running().has_value());
  EXPECT_EQ(restarted.running()->number, 7);
  EXPECT_EQ(restarted.running()->peers.size(), 3U);
  EXPECT_EQ(restarted.waiting(), 1);
}

// ---- scale

class ScaleTest : public RoundTest {
 protected:
  void ScaleTo(int members) {
    round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = members});
    round_.Tick(now_);
  }
  void Stop(int slot) {
    (void)round_.Leave({.member = MemberOf(slot), .reason = LeaveReason::kStopping, .detail = "on request"},
                       now_);
    round_.Tick(now_);
  }
};

TEST_F(ScaleTest, FollowsTheWantedNumberUpAndDownWithoutCallingItAFailure) {
  ScaleTo(2);
  for (int slot : {0, 1}) Join(slot);
  ASSERT_EQ(Members().size(), 2U);

  ScaleTo(4);
  EXPECT_TRUE(round_.running().has_value()) << "no member has joined yet";
  for (int slot : {2, 3}) Join(slot);
  EXPECT_EQ(round_.last_ending()->cause, std::nullopt);
  for (int slot : {0, 1}) Join(slot, 5);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1", "pod-2", "pod-3"}));

  ScaleTo(1);
  EXPECT_TRUE(round_.running().has_value()) << "they train until they are asked to stop";
  for (int slot : {3, 2, 1}) Stop(slot);
  EXPECT_EQ(round_.last_ending()->mode, LeaveMode::kYield);
  EXPECT_EQ(round_.last_ending()->cause, std::nullopt);
  EXPECT_TRUE(round_.last_ending()->departures.empty());
  Join(0, 9);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0"}));

  ScaleTo(3);
  for (int slot : {1, 2})
    ASSERT_EQ(round_.Join(RequestOf(MemberOf(slot, "new")), now_), Admission::kAccepted);
  round_.Tick(now_);
  Join(0, 12);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1", "pod-2"}));
  EXPECT_EQ(round_.newest_number(), 4) << "one round for each change";
}

TEST_F(ScaleTest, GivesNoPlaceToOneThatIsToGoThoughItHadTheFirstRank) {
  FormFirstRound();
  round_.PodGone({.pod_uid = "pod-0-uid"}, now_);
  for (int slot : {1, 2}) Join(slot, 3);
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(0, "new")), now_), Admission::kAccepted);
  round_.Tick(now_);
  for (int slot : {1, 2}) Join(slot, 4);
  ASSERT_EQ(Members(), (std::vector<std::string>{"pod-1", "pod-2", "pod-0"}));
  ScaleTo(1);
  Stop(2);
  Join(1, 5);
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(0, "new"), 5, round_.newest_number()), now_),
            Admission::kAccepted);
  round_.Tick(now_);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0"}));
}

TEST_F(ScaleTest, ASuspendedJobFormsNoRound) {
  FormFirstRound();
  ScaleTo(0);
  for (int slot : {0, 1, 2}) Stop(slot);
  EXPECT_EQ(round_.last_ending()->cause, std::nullopt);
  now_ += 1h;
  round_.Tick(now_);
  ASSERT_EQ(round_.Join(RequestOf(MemberOf(0, "new")), now_), Admission::kAccepted);
  round_.Tick(now_);
  EXPECT_FALSE(round_.running().has_value());
}

}  // namespace
}  // namespace lockstep::rendezvous

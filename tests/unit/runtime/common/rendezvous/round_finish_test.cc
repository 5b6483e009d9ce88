// Members that finish one after another.
#include "tests/unit/runtime/common/rendezvous/round_fixture.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using protocol::LeaveReason;

class FinishTest : public RoundTest {
 protected:
  FinishTest() { FormFirstRound(); }
  void Finish(int slot, protocol::FinishedRound finished) {
    protocol::JoinRequest request = RequestOf(MemberOf(slot), -1, finished.round);
    request.finished = finished;
    ASSERT_EQ(round_.Join(request, now_), Admission::kAccepted);
    round_.Tick(now_);
  }
  // In the first round, where the rank equals the slot.
  void Finish(int slot) { Finish(slot, {.round = 1, .world = 3, .first_rank = slot}); }
};

TEST_F(FinishTest, TheJobIsCompleteWhenAllAreThrough) {
  for (int slot : {2, 0}) {
    Finish(slot);
    Finish(slot);  // repeated after a long poll
    EXPECT_FALSE(round_.completed());
    EXPECT_TRUE(round_.running().has_value()) << "the others continue";
    EXPECT_FALSE(round_.FirstRankOf(slot).has_value()) << "it is not to do it again";
  }
  EXPECT_EQ(round_.FirstRankOf(1), 1);
  Finish(1);
  EXPECT_TRUE(round_.completed());
}

TEST_F(FinishTest, OneThatIsThroughTakesPartAgainWhereAnotherFails) {
  Finish(0);
  (void)round_.Leave({.member = MemberOf(1), .round = 1, .reason = LeaveReason::kRankDied}, now_);
  Join(1);
  Finish(2);  // it did not know yet
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(round_.running()->number, 2);
  EXPECT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-2", "pod-1"}));
  Finish(0, {.round = 2, .world = 3, .first_rank = 0});
  Finish(1, {.round = 2, .world = 3, .first_rank = 2});
  Finish(2);  // late
  EXPECT_FALSE(round_.completed()) << "the end of an older round is none of this one";
  Finish(2, {.round = 2, .world = 3, .first_rank = 1});
  EXPECT_TRUE(round_.completed());
}

TEST_F(FinishTest, OneThatFinishedWaitsForAPlaceFromTheEndOfItsRound) {
  now_ += 100s;
  for (int slot : {0, 1}) Beat(slot);
  Finish(2);
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 2, .standby_members = 1});
  (void)round_.Broken({.member = MemberOf(1), .round = 1, .reason = "collective failed"}, now_);
  for (int slot : {0, 1}) Join(slot);
  ASSERT_EQ(Members(), (std::vector<std::string>{"pod-0", "pod-1"}));
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 4, .grow_delay = 30s});
  round_.Tick(now_);
  EXPECT_TRUE(round_.running().has_value()) << "the grow delay begins where the round ended";
  now_ += 30s;
  for (int slot : {0, 1, 2}) Beat(slot);
  round_.Tick(now_);
  EXPECT_FALSE(round_.running().has_value());
}

TEST_F(FinishTest, ANewcomerDoesNotUndoWhatIsDone) {
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 4});
  Finish(0);
  Join(3);
  EXPECT_TRUE(round_.running().has_value()) << "the others are left to reach their end, too";
  EXPECT_FALSE(round_.last_ending().has_value());
}

TEST_F(FinishTest, TheJobIsCompleteIfAllReachTheirEndBeforeTheyYield) {
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 4});
  Join(3);
  ASSERT_FALSE(round_.running().has_value()) << "the newcomer is waited for no longer";
  for (int slot : {0, 1}) Finish(slot);
  EXPECT_FALSE(round_.completed());
  Finish(2);
  EXPECT_TRUE(round_.completed());
  EXPECT_FALSE(round_.running().has_value()) << "nothing is done again";
}

TEST_F(FinishTest, AMemberThatYieldsHasNotReachedItsEnd) {
  round_.SetSettings({.min_members = 1, .max_members = 4, .expected_members = 4});
  Join(3);
  for (int slot : {0, 1}) Finish(slot);
  Join(2);
  EXPECT_FALSE(round_.completed());
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(round_.running()->number, 2);
}

TEST_F(FinishTest, OneEndIsEnoughWhereAnyCounts) {
  round_.SetSettings(
      {.min_members = 1, .max_members = 4, .expected_members = 3, .success = SuccessRule::kAny});
  Finish(1);
  EXPECT_TRUE(round_.completed());
  EXPECT_TRUE(round_.dismisses());
  const int64_t revision = round_.revision();
  Join(0);
  EXPECT_FALSE(round_.last_ending().has_value()) << "the others come out of a round that ended well";
  EXPECT_EQ(round_.revision(), revision);
}

TEST_F(FinishTest, TheEndOfRank0CountsWhereverItIs) {
  round_.SetSettings(
      {.min_members = 1, .max_members = 4, .expected_members = 3, .success = SuccessRule::kRank0});
  (void)round_.Leave({.member = MemberOf(0), .round = 1, .reason = LeaveReason::kRankDied}, now_);
  for (int slot : {1, 2}) Join(slot);
  ASSERT_TRUE(round_.running().has_value());
  ASSERT_EQ(Members(), (std::vector<std::string>{"pod-1", "pod-2"}));
  Finish(2, {.round = 2, .world = 2, .first_rank = 1});
  EXPECT_FALSE(round_.completed());
  Finish(1, {.round = 2, .world = 2, .first_rank = 0});
  EXPECT_TRUE(round_.completed());
}

TEST_F(FinishTest, NoMemberIsDismissedWhenAllHaveFinished) {
  for (int slot : {0, 1, 2}) Finish(slot);
  EXPECT_FALSE(round_.dismisses());
}

TEST_F(FinishTest, ARestartedHostTakesNoOtherForRank0) {
  const auto beat = [&](int slot) {
    (void)round_.Heartbeat({.member = MemberOf(slot), .round = 1, .world = 3, .first_rank = slot}, now_);
  };
  const JobSettings settings{.min_members = 1,
                             .max_members = 4,
                             .expected_members = 3,
                             .success = SuccessRule::kRank0,
                             .first_round = 2};
  round_ = Round(settings);
  beat(2);
  Finish(2);
  EXPECT_FALSE(round_.completed());
  beat(0);
  Finish(0);
  EXPECT_TRUE(round_.completed());

  round_ = Round(settings);
  Finish(0);  // it had finished before, and reports its rank
  EXPECT_TRUE(round_.completed());
}

TEST_F(FinishTest, ARestartedHostLearnsTheEndOfAnEarlierRound) {
  round_ = Round(JobSettings{.min_members = 1, .max_members = 4, .expected_members = 3, .first_round = 2});
  for (int slot : {0, 2}) Finish(slot);
  EXPECT_FALSE(round_.completed());
  Finish(1);
  EXPECT_TRUE(round_.completed());
  EXPECT_FALSE(round_.running().has_value()) << "nothing starts again";
}

TEST_F(FinishTest, ARestartedHostWaitsForThoseThatAreNotThrough) {
  round_ = Round(JobSettings{.min_members = 1, .max_members = 4, .expected_members = 3, .first_round = 2});
  Finish(0);
  for (int slot : {1, 2}) {
    (void)round_.Heartbeat({.member = MemberOf(slot), .round = 1, .world = 3, .first_rank = slot}, now_);
    round_.Tick(now_);
  }
  ASSERT_TRUE(round_.running().has_value());
  EXPECT_EQ(round_.running()->number, 1);
  Finish(1);
  EXPECT_FALSE(round_.completed());
  Finish(2);
  EXPECT_TRUE(round_.completed());
}

}  // namespace
}  // namespace lockstep::rendezvous

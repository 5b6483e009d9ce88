#include "runtime/common/rendezvous/spec_check.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

// Two members and one standby, two ranks each; the newest round is the fifth.
class SpecCheck : public ::testing::Test {
 protected:
  template <typename Message>
  std::string Problem(const Message& message, bool is_newcomer = true) {
    const auto checked =
        CheckMessage(message, {.settings = settings_, .newest_round = 5, .is_newcomer = is_newcomer});
    return checked.ok() ? "" : checked.error().message;
  }

  JobSettings settings_{.max_members = 2, .expected_members = 2, .standby_members = 1, .nproc = 2};
  static constexpr int64_t kTooFar = 5 + kMaxRoundsAhead + 1;
};

TEST_F(SpecCheck, ANewcomerHasASlotOfTheJobAndItsRanks) {
  EXPECT_EQ(Problem(protocol::JoinRequest{.member = {.slot = 2}, .nproc = 2}), "");
  EXPECT_EQ(Problem(protocol::JoinRequest{.member = {.slot = 3}, .nproc = 2}),
            "member.slot: must be below 3 in this job, not 3");
  EXPECT_EQ(Problem(protocol::JoinRequest{.member = {.slot = 2}, .nproc = 1}),
            "nproc: must be 2, as spec.nprocPerNode says, not 1");
  settings_.nproc.reset();
  EXPECT_EQ(Problem(protocol::JoinRequest{.member = {.slot = 2}, .nproc = 7}), "") << "auto";
}

TEST_F(SpecCheck, AMemberKeepsWhatItHadUnderAnOlderSpec) {
  EXPECT_EQ(Problem(protocol::JoinRequest{.member = {.slot = 3}, .nproc = 1}, false), "");
}

TEST_F(SpecCheck, RoundsMayBeAheadOfTheHostButNotByMoreThanFormationsExplain) {
  EXPECT_EQ(Problem(protocol::WatchRequest{.round = kTooFar - 1}), "");
  EXPECT_EQ(Problem(protocol::WatchRequest{.round = kTooFar}),
            "round: must be at most 1000005 in this job, not 1000006");
  EXPECT_NE(Problem(protocol::BrokenReport{.round = kTooFar}), "");
  EXPECT_NE(Problem(protocol::LeaveRequest{.round = kTooFar}), "");
  const std::string join = Problem(protocol::JoinRequest{.nproc = 2, .last_round = kTooFar});
  EXPECT_TRUE(join.starts_with("lastRound:")) << join;
  EXPECT_NE(Problem(protocol::JoinRequest{.nproc = 2, .finished = {.round = kTooFar, .world = 2}}), "");
  EXPECT_NE(Problem(protocol::Heartbeat{.round = kTooFar, .world = 1}), "");
  EXPECT_NE(Problem(protocol::Heartbeat{.world = 1, .progress = {.round = kTooFar}}), "");
  EXPECT_NE(Problem(protocol::Heartbeat{.world = 1, .ranks = {{.work_round = kTooFar}}}), "");
  EXPECT_NE(Problem(protocol::Heartbeat{.world = 1, .repairs = {{.formation = kTooFar}}}), "");
}

TEST_F(SpecCheck, ARankIsWithinItsWorld) {
  EXPECT_EQ(Problem(protocol::Heartbeat{.round = 6, .world = 4, .first_rank = 2, .nproc = 2}), "");
  EXPECT_EQ(Problem(protocol::Heartbeat{.round = 6, .world = 4, .first_rank = 3, .nproc = 2}),
            "firstRank: must be at most world - nproc = 2, not 3");
  EXPECT_EQ(Problem(protocol::Heartbeat{.round = 6, .world = 20'001, .nproc = 2}),
            "world: must be at most 10,000 times nproc = 20000, not 20001");
  const protocol::FinishedRound outside{.round = 5, .world = 2, .first_rank = 1};
  EXPECT_EQ(Problem(protocol::JoinRequest{.nproc = 2, .finished = outside}),
            "finished.firstRank: must be at most world - nproc = 0, not 1");
}

TEST_F(SpecCheck, AMemberReportsItsOwnRanks) {
  protocol::Heartbeat beat{.round = 5, .world = 4, .first_rank = 2, .nproc = 2, .ranks = {{.rank = 3}}};
  EXPECT_EQ(Problem(beat, false), "");
  beat.ranks[0].rank = 4;
  EXPECT_EQ(Problem(beat, false), "ranks[].rank: must be from firstRank = 2 to 3, not 4");
}

}  // namespace
}  // namespace lockstep::rendezvous

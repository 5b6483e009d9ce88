// The rendezvous of a job that runs a program of its own, which may report its steps, or not.
#include <gtest/gtest.h>

#include <string>

#include "runtime/common/base/fields.h"
#include "runtime/common/rendezvous/job_entry.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using protocol::LeaveReason;

TEST(JobEntryOfAProgram, KeepsWhatRankZeroKnowsOfAStepThatAnotherPodReportsFirst) {
  const Moment now{SteadyTime(1h), WallTime(1h)};
  Outbox outbox;
  JobEntry entry{{"ns", "job", "uid"}, {.min_members = 2, .max_members = 2, .expected_members = 2}};
  const auto member = [](int slot) {
    return protocol::Member{.pod = "pod-" + std::to_string(slot),
                            .pod_uid = std::to_string(slot),
                            .slot = slot,
                            .incarnation = "1"};
  };
  for (int slot : {0, 1}) {
    entry.Join(
        {.member = member(slot)}, [](auto) {}, now, outbox);
  }
  (void)entry.Advance(now, outbox);
  const auto beat = [&](int slot, const protocol::Progress& progress) {
    entry.Heartbeat(
        {.member = member(slot), .round = 1, .progress = progress}, [](auto) {}, now, outbox);
  };
  beat(0, {.round = 1, .step = 10, .total_steps = 100, .loss = 0.5, .steps_total = 10});
  beat(1, {.round = 1, .step = 11, .steps_total = 11});
  EXPECT_EQ(entry.View().progress.step, 11);
  EXPECT_EQ(entry.View().progress.total_steps, 100);
  EXPECT_EQ(entry.View().progress.loss, 0.5);
}

// A witness reports steps: each restart begins with a report of its start, which is not progress.
TEST(JobEntryOfAProgram, RecoversWithItsNextStepOnceItHasReportedSteps) {
  Moment now{SteadyTime(1h), WallTime(1h)};
  Outbox outbox;
  JobEntry entry{{"ns", "job", "uid"}, {.min_members = 1, .max_members = 1, .expected_members = 1}};
  const protocol::Member member{.pod = "pod-0", .pod_uid = "uid", .incarnation = "1"};
  const auto join = [&](int64_t round) {
    entry.Join(
        {.member = member, .last_round = round - 1}, [](auto) {}, now, outbox);
    (void)entry.Advance(now, outbox);
  };
  const auto beat = [&](const protocol::Progress& progress) {
    entry.Heartbeat(
        {.member = member, .round = progress.round, .progress = progress}, [](auto) {}, now, outbox);
    (void)entry.Advance(now, outbox);
  };
  const auto pass = [&](std::chrono::seconds time) {
    now.steady += time;
    now.wall += time;
  };
  join(1);
  beat({.round = 1});
  pass(60s);
  beat({.round = 1, .step = 50, .steps_total = 50});
  entry.Leave(
      {.member = member, .round = 1, .reason = LeaveReason::kRankDied}, [](auto) {}, now, outbox);
  (void)entry.Advance(now, outbox);
  pass(1s);
  join(2);
  beat({.round = 2});
  EXPECT_EQ(entry.View().progress.step, 50) << "its start takes no step back";
  pass(4s);
  beat({.round = 2, .step = 41, .steps_total = 1});
  const RoundChange change = entry.View().changes.at(0);
  EXPECT_EQ(change.recovery_seconds, 5);
  EXPECT_EQ(change.lost_steps, 10);
}

TEST(JobEntryOfAProgram, ReportsNoLostStepsWithoutReportedSteps) {
  Moment now{SteadyTime(1h), WallTime(1h)};
  Outbox outbox;
  JobEntry entry{{"ns", "job", "uid"}, {.min_members = 1, .max_members = 1, .expected_members = 1}};
  const protocol::Member member{.pod = "pod-0", .pod_uid = "uid", .incarnation = "1"};
  const auto run = [&](int64_t round) {
    entry.Join(
        {.member = member, .last_round = round - 1}, [](auto) {}, now, outbox);
    (void)entry.Advance(now, outbox);
    entry.Heartbeat(
        {.member = member, .round = round, .progress = {.round = round}}, [](auto) {}, now, outbox);
    (void)entry.Advance(now, outbox);
  };
  run(1);
  now.steady += 60s;
  now.wall += 60s;
  entry.Leave(
      {.member = member, .round = 1, .reason = LeaveReason::kRankDied}, [](auto) {}, now, outbox);
  (void)entry.Advance(now, outbox);
  now.steady += 1s;
  now.wall += 1s;
  run(2);
  const RoundChange change = entry.View().changes.at(0);
  EXPECT_EQ(change.recovery_seconds, 1);
  EXPECT_EQ(change.lost_steps, 0);
  EXPECT_EQ(change.unfinished_seconds, 0);
}

TEST(JobEntryOfAProgram, DismissesTheOthersWhenOneEndIsEnough) {
  const Moment now{SteadyTime(1h), WallTime(1h)};
  Outbox outbox;
  JobEntry entry{{"ns", "job", "uid"},
                 {.min_members = 2, .max_members = 2, .expected_members = 2, .success = SuccessRule::kAny}};
  const auto join = [&](int slot, int64_t last_round, int64_t finished_round) {
    const std::string pod = "pod-" + std::to_string(slot);
    entry.Join(
        {.member = {.pod = pod, .pod_uid = pod, .slot = slot, .incarnation = "1"},
         .last_round = last_round,
         .finished = {.round = finished_round, .world = 2, .first_rank = slot}},
        [](auto) {}, now, outbox);
    (void)entry.Advance(now, outbox);
  };
  join(0, 0, 0);
  join(1, 0, 0);
  entry.Watch(
      {.member = {.pod = "pod-1", .pod_uid = "pod-1", .slot = 1, .incarnation = "1"}, .round = 1},
      [](auto) {}, now, outbox);
  (void)entry.Advance(now, outbox);
  outbox.clear();
  join(0, 1, 1);
  ASSERT_EQ(outbox.size(), 2U) << "the answers to its join and to the watch of the other";
  outbox.clear();
  join(1, 1, 0);
  ASSERT_EQ(outbox.size(), 1U);
  const auto answer = MessageFromJson<protocol::JoinAnswer>(*ParseJson(outbox[0].second.body));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->state, protocol::JoinState::kCompleted);
  EXPECT_TRUE(entry.View().changes.empty()) << "no round broke";
}

}  // namespace
}  // namespace lockstep::rendezvous

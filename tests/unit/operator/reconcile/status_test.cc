#include "operator/reconcile/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "operator/reconcile/notes.h"
#include "operator/reconcile/plan.h"
#include "runtime/common/api/conditions.h"
#include "tests/support/job_world.h"

namespace lockstep::reconcile {
namespace {

using ::testing::HasSubstr;
using testing::JobWorld;
namespace condition = api::condition;

TEST(Status, FollowsAJobFromItsPodsToItsFirstStep) {
  JobWorld world;
  world.Running(0).Running(1);
  EXPECT_EQ(MakePlan(world.observed()).status.state, "Starting");
  world.Round(1, {0, 1}, 0);
  EXPECT_EQ(MakePlan(world.observed()).status.state, "Starting") << "a round, but no step yet";
  world.Round(1, {0, 1}, 3);
  const auto status = MakePlan(world.observed()).status;
  EXPECT_EQ(status.state, "Running");
  EXPECT_EQ(status.rendezvous, (api::RendezvousStatus{1, 2}));
  EXPECT_EQ(status.replicas, 2);
  EXPECT_EQ(status.ready_replicas, 2);
  EXPECT_EQ(status.progress->step, 3);
}

// The rules of kstatus for an unknown kind.
std::string KstatusOf(const api::TrainingJobStatus& status) {
  if (api::IsTrue(status.conditions, "Reconciling")) return "InProgress";
  if (api::IsTrue(status.conditions, "Stalled")) return "Failed";
  return api::IsTrue(status.conditions, "Ready") ? "Current" : "InProgress";
}

TEST(Status, ReportsReadinessInStandardConditions) {
  JobWorld world;
  world.Running(0).Running(1);
  EXPECT_EQ(KstatusOf(MakePlan(world.observed()).status), "InProgress");
  world.Round(1, {0, 1}, 3);
  world.observed().job.status = MakePlan(world.observed()).status;
  EXPECT_EQ(KstatusOf(world.observed().job.status), "Current");
  EXPECT_EQ(api::FindCondition(world.observed().job.status.conditions, "Ready")->reason, "Running");
  EXPECT_EQ(MakePlan(world.observed()).status, world.observed().job.status) << "and nothing to write";

  world.observed().job.spec.suspend = true;
  EXPECT_EQ(KstatusOf(MakePlan(world.observed()).status), "InProgress");
  world.observed().job.spec.suspend = false;

  world.observed().job.spec.run_policy.active_deadline_seconds = 60;
  world.observed().now += std::chrono::hours(1);
  const auto failed = MakePlan(world.observed()).status;
  EXPECT_EQ(failed.state, "Failed");
  EXPECT_EQ(KstatusOf(failed), "Failed");
  EXPECT_EQ(NotesOfStatus(world.observed(), failed).size(), 1U) << "one event for one failure";
  world.observed().job.status = failed;
  world.observed().now += std::chrono::minutes(1);
  EXPECT_EQ(MakePlan(world.observed()).status.conditions, failed.conditions);
}

TEST(Status, TakesARoundOfAProgramForItsStart) {
  JobWorld world;
  world.Running(0).Running(1);
  world.observed().job.spec.training.reset();
  world.observed().job.spec.run_policy.startup_deadline_seconds = 60;
  world.observed().job.status.start_time = world.observed().now - std::chrono::hours(1);
  const auto late = MakePlan(world.observed()).status;
  EXPECT_EQ(api::FindCondition(late.conditions, condition::kFailed)->message,
            "no round within runPolicy.startupDeadlineSeconds, 60");
  world.observed().job.status.start_time = world.observed().now;
  world.Round(1, {0, 1}, 0);
  world.observed().job.status = MakePlan(world.observed()).status;
  EXPECT_EQ(world.observed().job.status.state, "Running") << "it reports no steps";
  world.observed().now += std::chrono::hours(1);
  EXPECT_FALSE(api::IsFinished(MakePlan(world.observed()).status.conditions));
}

TEST(Status, IsDegradedWhileFewerTrainAndRestartingWhileNoneDoes) {
  JobWorld world;
  world.Elastic(1, 3).Replicas(3).Running(0).Running(1).Pending(2).Round(2, {0, 1}, 5);
  auto status = MakePlan(world.observed()).status;
  EXPECT_TRUE(api::IsTrue(status.conditions, condition::kDegraded));
  EXPECT_THAT(api::FindCondition(status.conditions, condition::kDegraded)->message, HasSubstr("2 of 3"));
  world.observed().job.status = status;
  world.observed().rendezvous.members.clear();
  world.observed().rendezvous.world_size = 0;
  world.observed().rendezvous.changes = {{.round = 2,
                                          .cause = protocol::FailureCause::kInfrastructure,
                                          .departures = {{.pod = "job-worker-1"}}}};
  status = MakePlan(world.observed()).status;
  EXPECT_EQ(status.state, "Restarting");
  ASSERT_EQ(status.restarts.size(), 1U);
  EXPECT_EQ(status.restarts[0].round, 2);
  EXPECT_EQ(status.restarts[0].cause, api::FailureCause::kInfrastructure);
}

TEST(Status, ReportsAnUnavailableStoreInAConditionAndOneEvent) {
  JobWorld world;
  world.Running(0).Running(1).Round(2, {0, 1}, 5);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().rendezvous.store_outage = {.pod = "job-worker-0",
                                              .waiting = "the last checkpoint",
                                              .reason = "s3://b: connection refused",
                                              .since = WallTime(std::chrono::seconds(86400))};
  const auto status = MakePlan(world.observed()).status;
  const api::Condition* degraded = api::FindCondition(status.conditions, condition::kDegraded);
  ASSERT_NE(degraded, nullptr);
  EXPECT_EQ(degraded->reason, "StoreUnavailable");
  EXPECT_EQ(
      degraded->message,
      "job-worker-0: the last checkpoint has waited since 1970-01-02T00:00:00Z for a store that does not "
      "answer: s3://b: connection refused");
  EXPECT_EQ(status.state, "Running");
  const auto notes = NotesOfStatus(world.observed(), status);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].reason, "StoreUnavailable");
  world.observed().job.status = status;
  world.observed().rendezvous.store_outage.reset();
  EXPECT_FALSE(api::IsTrue(MakePlan(world.observed()).status.conditions, condition::kDegraded));
}

TEST(Status, NamesAFailedSaveInAConditionAndOneEvent) {
  JobWorld world;
  world.Running(0).Running(1).Round(2, {0, 1}, 5);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().rendezvous.save_failed = {.step = 400, .reason = "s3://b/step-400: quota exceeded"};
  const auto status = MakePlan(world.observed()).status;
  const api::Condition* degraded = api::FindCondition(status.conditions, condition::kDegraded);
  ASSERT_NE(degraded, nullptr);
  EXPECT_EQ(degraded->reason, "CheckpointFailed");
  EXPECT_EQ(degraded->message,
            "no checkpoint of step 400 was stored, and none since then: s3://b/step-400: quota exceeded");
  const auto notes = NotesOfStatus(world.observed(), status);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].reason, "CheckpointFailed");
  world.observed().job.status = status;
  world.observed().rendezvous.save_failed.reset();
  EXPECT_FALSE(api::IsTrue(MakePlan(world.observed()).status.conditions, condition::kDegraded));
}

TEST(Status, NamesAStragglerInAConditionAndOneEvent) {
  JobWorld world;
  world.Running(0).Running(1).Round(2, {0, 1}, 5);
  const auto before = MakePlan(world.observed()).status;
  world.observed().job.status = before;
  world.observed().rendezvous.stragglers = {{"job-worker-1", 1, 2.5}};
  const auto status = MakePlan(world.observed()).status;
  const api::Condition* degraded = api::FindCondition(status.conditions, condition::kDegraded);
  ASSERT_NE(degraded, nullptr);
  EXPECT_EQ(degraded->reason, "Straggler");
  EXPECT_EQ(degraded->message,
            "rank 1 (job-worker-1) is a straggler: it computes 2.5 times as long as the median rank");
  EXPECT_EQ(status.state, "Running");
  const auto notes = NotesOfStatus(world.observed(), status);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].reason, "Straggler");
  EXPECT_EQ(notes[0].note, degraded->message);
  world.observed().job.status = status;
  EXPECT_TRUE(NotesOfStatus(world.observed(), status).empty());
  world.observed().rendezvous.stragglers.clear();
  EXPECT_FALSE(api::IsTrue(MakePlan(world.observed()).status.conditions, condition::kDegraded));
}

TEST(Status, IsKeptWhileARestartedOperatorHasNoReports) {
  JobWorld world;
  world.Running(0).Running(1).Round(4, {0, 1}, 50);
  const auto status = MakePlan(world.observed()).status;
  world.observed().job.status = status;
  world.observed().rendezvous = {};
  world.observed().rendezvous.round = 4;
  EXPECT_EQ(MakePlan(world.observed()).status, status);
}

TEST(Status, WritesProgressAtMostEveryTenSeconds) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 50);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().now += std::chrono::seconds(9);
  world.Round(1, {0, 1}, 60);
  EXPECT_EQ(MakePlan(world.observed()).status.progress->step, 50);
  world.observed().now += std::chrono::seconds(1);
  world.Round(1, {0, 1}, 61);
  EXPECT_EQ(MakePlan(world.observed()).status.progress->step, 61);
}

TEST(Status, WritesTheLastProgressAtTheEndWhateverThePeriod) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 50);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().pods.clear();
  world.Succeeded(0).Succeeded(1).Round(1, {}, 55);
  world.observed().rendezvous.completed = true;
  const auto status = MakePlan(world.observed()).status;
  EXPECT_EQ(status.progress->step, 55);
  EXPECT_EQ(status.state, "Complete");
}

// The operator returns an hour after the end.
TEST(Status, EndsAJobWhenItsPodsEnded) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 50);
  world.observed().job.status = MakePlan(world.observed()).status;
  const WallTime last_look = world.observed().now;
  world.observed().pods.clear();
  world.Succeeded(0).Succeeded(1);
  for (Pod& pod : world.observed().pods) pod.ended = last_look + std::chrono::seconds(99);
  world.observed().rendezvous = {.completed = true};
  world.observed().now += std::chrono::hours(1);
  const auto status = MakePlan(world.observed()).status;
  EXPECT_EQ(status.state, "Complete");
  const auto end = last_look + std::chrono::seconds(100);  // the kubelet reports whole seconds
  EXPECT_EQ(status.completion_time, end);
  const double booked = status.goodput->productive_seconds + status.goodput->lost_seconds.startup +
                        status.goodput->lost_seconds.scheduling + status.goodput->lost_seconds.rendezvous;
  EXPECT_NEAR(booked, Seconds(end - *status.goodput->since).count(), 1);
}

// The clocks of the nodes are an hour behind or ahead of the operator's.
TEST(Status, EndsAJobBetweenItsLastProgressAndNowWhateverItsNodesSay) {
  for (const auto skew : {std::chrono::hours(-1), std::chrono::hours(1)}) {
    JobWorld world;
    world.Running(0).Running(1).Round(1, {0, 1}, 50);
    world.observed().job.status = MakePlan(world.observed()).status;
    world.observed().now += std::chrono::minutes(5);
    world.Round(1, {0, 1}, 90);
    world.observed().rendezvous.last_progress_time = world.observed().now;
    world.observed().job.status = MakePlan(world.observed()).status;
    const WallTime last_progress = world.observed().now;
    world.observed().pods.clear();
    world.Succeeded(0).Succeeded(1);
    for (Pod& pod : world.observed().pods) pod.ended = last_progress + skew;
    world.observed().rendezvous = {.completed = true};
    world.observed().now += std::chrono::minutes(1);
    const auto status = MakePlan(world.observed()).status;
    EXPECT_EQ(status.state, "Complete");
    EXPECT_EQ(status.completion_time, skew.count() < 0 ? last_progress : world.observed().now);
  }
}

TEST(Status, HoldsTheNewestEvaluationAsItsRankReportedIt) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 50);
  const protocol::Evaluated evaluation{.step = 48, .epoch = 1.5, .loss = NAN, .accuracy = 0.5};
  const auto received = protocol::DecodeFromRank(protocol::Encode(protocol::FromRank(evaluation)));
  world.observed().rendezvous.evaluation = std::get<protocol::Evaluated>(*received);
  const Json status = api::TrainingJobStatusToJson(MakePlan(world.observed()).status);
  EXPECT_EQ(DumpJson(status["progress"]["evaluation"]), R"({"accuracy":0.5,"epoch":1.5,"step":48})");
}

TEST(Status, ReportsTheCheckpointOfASuspensionRegardlessOfThePeriod) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 50);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().job.spec.suspend = true;
  world.Round(1, {0, 1}, 55);
  world.observed().rendezvous.checkpoint.step = 55;
  world.observed().rendezvous.checkpoint.uri = "s3://bucket/job/step-000000000055";
  EXPECT_EQ(MakePlan(world.observed()).status.checkpoint->step, 55);
}

TEST(Status, ReportsAProgramsCheckpointAgainWhenItsFileIsWrittenAgain) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 50);
  rendezvous::RendezvousView& view = world.observed().rendezvous;
  const WallTime first(std::chrono::seconds(1000));
  for (const WallTime time : {first, first + std::chrono::milliseconds(5500)}) {
    view.checkpoint = {
        .step = -1, .uri = "file:///c/model.pt", .completed_at = Seconds(time.time_since_epoch()).count()};
    view.checkpoint_time = time;
    view.last_progress_time += std::chrono::minutes(1);  // it is written from time to time
    world.observed().job.status = MakePlan(world.observed()).status;
    const auto& checkpoint = world.observed().job.status.checkpoint;
    EXPECT_EQ(checkpoint->step, std::nullopt);
    EXPECT_EQ(checkpoint->time, std::chrono::floor<std::chrono::seconds>(time));
  }
}

TEST(Status, NeverTakesATerminalConditionBack) {
  JobWorld world;
  world.Succeeded(0).Succeeded(1);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().pods.clear();
  world.observed().violations = {"spec: anything"};
  const auto status = MakePlan(world.observed()).status;
  EXPECT_EQ(status.state, "Complete");
  EXPECT_FALSE(api::IsTrue(status.conditions, condition::kFailed));
}

TEST(Status, KeepsTheNewestTenRestartsAndForgetsGrowth) {
  JobWorld world;
  world.Running(0).Running(1).Round(14, {0, 1}, 9);
  for (int64_t round = 1; round <= 13; ++round) {
    world.observed().rendezvous.changes.push_back(
        {.round = round,
         .cause = round == 13 ? std::nullopt : std::optional(protocol::FailureCause::kInfrastructure)});
  }
  const auto status = MakePlan(world.observed()).status;
  ASSERT_EQ(status.restarts.size(), 10U);
  EXPECT_EQ(status.restarts.front().round, 12);
  EXPECT_EQ(status.restarts.back().round, 3);
}

TEST(Status, KeepsTheDamagedCheckpointsOfTheHighestStepsWithTheTimeTheyWereNoticed) {
  JobWorld world;
  world.Running(0).Running(1).Round(3, {0, 1}, 9);
  auto& damaged = world.observed().rendezvous.damaged_checkpoints;
  damaged = {{20, "cut short"}, {10, "is missing"}};
  const WallTime begin = world.observed().now;
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().now += std::chrono::hours(1);
  damaged.clear();
  for (int64_t step = 90; step >= 30; step -= 10) damaged.push_back({step, "cut short"});
  const auto status = MakePlan(world.observed()).status;
  ASSERT_EQ(status.damaged_checkpoints.size(), 8U);
  EXPECT_EQ(status.damaged_checkpoints.front(),
            (api::DamagedCheckpoint{world.observed().now, 90, "cut short"}));
  EXPECT_EQ(status.damaged_checkpoints.back(), (api::DamagedCheckpoint{begin, 20, "cut short"}));
}

TEST(Status, ReportsEveryFieldOfARestart) {
  JobWorld world;
  world.Running(0).Running(1).Round(3, {0, 1}, 9);
  rendezvous::RoundChange change{.round = 2,
                                 .cause = protocol::FailureCause::kHang,
                                 .reason = "rank 3 hangs",
                                 .departures = {{.pod = "job-worker-1",
                                                 .pod_uid = "uid-1",
                                                 .slot = 1,
                                                 .ranks = {3, 2},
                                                 .exit_code = 137,
                                                 .detection_seconds = 4,
                                                 .last_lines = "no kernel image"}},
                                 .level = rendezvous::RecoveryLevel::kRespawn,
                                 .recovery_seconds = 0.25,
                                 .lost_steps = 1};
  world.observed().rendezvous.changes = {change};
  api::RestartRecord record{.time = world.observed().now,
                            .round = 2,
                            .cause = api::FailureCause::kHang,
                            .ranks = {2, 3},
                            .node = "node-1",
                            .exit_code = 137,
                            .level = api::RecoveryLevel::kRespawn,
                            .detection_seconds = 4,
                            .recovery_seconds = 0.25,
                            .lost_steps = 1,
                            .message = "round 2: rank 3 hangs; last lines of job-worker-1:\nno kernel image"};
  EXPECT_THAT(MakePlan(world.observed()).status.restarts, ::testing::ElementsAre(record));

  // Another pod replaces the one that is gone: the record follows, and keeps its time.
  world.observed().job.status.restarts = {record};
  world.observed().pods.pop_back();
  world.observed().now += std::chrono::seconds(5);
  world.observed().rendezvous.changes[0].level = rendezvous::RecoveryLevel::kReplacePod;
  record.level = api::RecoveryLevel::kReplacePod;
  EXPECT_THAT(MakePlan(world.observed()).status.restarts, ::testing::ElementsAre(record));
}

TEST(Status, ReportsABrokenRoundOnceItsCauseIsKnown) {
  JobWorld world;
  world.Running(0).Running(1).Round(2, {}, 9);
  world.observed().rendezvous.changes = {{.round = 2, .cause = protocol::FailureCause::kInfrastructure}};
  EXPECT_TRUE(MakePlan(world.observed()).status.restarts.empty());
  world.Round(3, {0, 1}, 9);
  EXPECT_EQ(MakePlan(world.observed()).status.restarts.size(), 1U);
}

TEST(Status, CountsStandbysApart) {
  JobWorld world;
  world.observed().job.spec.standby_replicas = 2;
  world.Running(0).Running(1).Running(2).Pending(3).Round(1, {0, 2}, 5);
  world.observed().rendezvous.waiting = 1;
  auto status = MakePlan(world.observed()).status;
  EXPECT_EQ(status.replicas, 2);
  EXPECT_EQ(status.ready_replicas, 2);
  EXPECT_EQ(status.standby_replicas, 1) << "one of the two is warm";

  // A member died and the standby has its place; there is no standby until the replacement is ready.
  world.observed().pods.pop_back();
  world.observed().pods.erase(world.observed().pods.begin());
  world.Round(2, {2, 1}, 6);
  world.observed().rendezvous.waiting = 0;
  status = MakePlan(world.observed()).status;
  EXPECT_EQ(status.replicas, 2);
  EXPECT_EQ(status.standby_replicas, 0);
}

TEST(Status, SaysWhyTheApiServerRefusesAPodAndMovesNoTimeOnRetries) {
  JobWorld world;
  const Error quota{ErrorCode::kForbidden, "403 exceeded quota: gpus"};
  const auto planned = MakePlan(world.observed()).status;
  const auto waiting = StatusAfterRefusal(world.observed(), planned, quota);
  EXPECT_EQ(waiting.state, "Stalled");
  EXPECT_EQ(api::FindCondition(waiting.conditions, condition::kStalled)->reason, "PodRejected");
  world.observed().job.status = waiting;
  world.observed().now += std::chrono::minutes(1);
  EXPECT_EQ(StatusAfterRefusal(world.observed(), MakePlan(world.observed()).status, quota), waiting);
}

TEST(Status, FailsAJobWhoseFirstPodsAreInvalidAndWaitsWhereALaterSpecIs) {
  JobWorld world;
  const Error invalid{ErrorCode::kInvalidArgument, "spec.worker.template: 422 spec.x: bad"};
  const auto planned = MakePlan(world.observed()).status;
  const auto failed = StatusAfterRefusal(world.observed(), planned, invalid);
  EXPECT_EQ(failed.state, "Failed");
  EXPECT_EQ(api::FindCondition(failed.conditions, condition::kFailed)->message, invalid.message);
  world.observed().job.status = planned;
  const auto stalled = StatusAfterRefusal(world.observed(), planned, invalid);
  EXPECT_EQ(stalled.state, "Stalled");
  EXPECT_EQ(api::FindCondition(stalled.conditions, condition::kStalled)->reason, "InvalidSpec");
}

}  // namespace
}  // namespace lockstep::reconcile

#include "operator/reconcile/goodput.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "operator/reconcile/plan.h"
#include "runtime/common/api/conditions.h"
#include "tests/support/job_world.h"

namespace lockstep::reconcile {
namespace {

using api::Activity;
using testing::JobWorld;

double SumOf(const api::GoodputStatus& goodput) {
  const api::LostSeconds& lost = goodput.lost_seconds;
  return goodput.productive_seconds + lost.scheduling + lost.startup + lost.rendezvous + lost.checkpoint +
         lost.recompute + lost.stalled;
}

// One pass after `passing_seconds`; the status is written, and read back as the API server stores it.
api::GoodputStatus Pass(JobWorld& world, double passing_seconds) {
  Observed& observed = world.observed();
  observed.now += std::chrono::duration_cast<WallTime::duration>(Seconds(passing_seconds));
  std::vector<std::string> violations;
  const Json stored = api::TrainingJobStatusToJson(MakePlan(observed).status);
  observed.job.status = api::TrainingJobStatusFromJson(stored, violations);
  return observed.job.status.goodput.value_or(api::GoodputStatus{});
}

TEST(Goodput, FollowsAJobThroughItsLife) {
  JobWorld world;
  EXPECT_EQ(Pass(world, 0).activity, Activity::kScheduling);
  world.Pending(0).Pending(1);
  for (Pod& pod : world.observed().pods) pod.node = "n";
  EXPECT_EQ(Pass(world, 5).activity, Activity::kStartup);
  world.observed().rendezvous.waiting = 2;
  world.observed().rendezvous.round = 0;
  for (Pod& pod : world.observed().pods) pod.phase = PodPhase::kRunning;
  EXPECT_EQ(Pass(world, 7).activity, Activity::kRendezvous);
  world.Round(1, {0, 1}, 1);
  EXPECT_EQ(Pass(world, 2).activity, Activity::kTraining);
  world.Round(1, {0, 1}, 90);
  world.observed().rendezvous.last_progress_time += std::chrono::seconds(86);
  const api::GoodputStatus goodput = Pass(world, 86);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.scheduling, 5);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.startup, 7);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.rendezvous, 2);
  EXPECT_DOUBLE_EQ(goodput.productive_seconds, 86);
  EXPECT_DOUBLE_EQ(goodput.ratio, 0.86);
}

TEST(Goodput, AProgramHasOnlyStartedUntilItsFirstStep) {
  JobWorld world;
  world.observed().job.spec.training.reset();
  world.Running(0).Running(1).Round(1, {0, 1}, 0);
  (void)Pass(world, 0);
  EXPECT_DOUBLE_EQ(Pass(world, 20).productive_seconds, 0) << "it is not written";
  world.Round(1, {0, 1}, 5);
  world.observed().rendezvous.progress.phase_seconds = {{"forward", 2}, {"backward_reduce", 1}};
  const api::GoodputStatus first = Pass(world, 1);
  EXPECT_DOUBLE_EQ(first.productive_seconds, 3);
  EXPECT_DOUBLE_EQ(first.lost_seconds.startup, 18);
  world.Round(1, {0, 1}, 50);
  world.observed().rendezvous.last_progress_time += std::chrono::seconds(30);
  EXPECT_DOUBLE_EQ(Pass(world, 30).productive_seconds, 33) << "once";
}

TEST(Goodput, WaitsForAPlaceUntilEveryPodThatStaysHasANode) {
  JobWorld world;
  world.Pending(0).Pending(1);
  EXPECT_EQ(Pass(world, 0).activity, Activity::kScheduling);
  for (Pod& pod : world.observed().pods) pod.node = "n";
  world.observed().pods[1].deleting = true;
  EXPECT_EQ(Pass(world, 1).activity, Activity::kScheduling);
  world.observed().pods[1].deleting = false;
  EXPECT_EQ(Pass(world, 1).activity, Activity::kStartup);
}

TEST(Goodput, IsNothingBeforeAnyTimeHasPassed) {
  EXPECT_EQ(GoodputLedger({.since = WallTime()}).status().ratio, 0);
}

TEST(Goodput, CountsADiscardedStepAndRepeatedStepsAsRecomputed) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  world.Round(1, {}, 40);  // broke after 20 s, the last 4 of them in an incomplete step
  world.observed().rendezvous.world_size = 0;
  world.observed().rendezvous.best_step = 40;
  world.observed().rendezvous.waiting = 2;
  world.observed().rendezvous.changes = {
      {.round = 1, .cause = protocol::FailureCause::kInfrastructure, .departures = {{.slot = 1}}}};
  EXPECT_EQ(Pass(world, 20).activity, Activity::kRendezvous);
  world.Round(2, {0, 1}, 31);
  world.observed().rendezvous.changes[0].recovery_seconds = 3;
  world.observed().rendezvous.changes[0].unfinished_seconds = 4;
  api::GoodputStatus goodput = Pass(world, 3);
  EXPECT_EQ(goodput.activity, Activity::kRecompute) << "step 31 was made before";
  EXPECT_DOUBLE_EQ(goodput.productive_seconds, 16);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.rendezvous, 3);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.recompute, 4);
  world.Round(2, {0, 1}, 40);
  goodput = Pass(world, 6);
  EXPECT_EQ(goodput.activity, Activity::kTraining);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.recompute, 10);
}

TEST(Goodput, SubtractsTheTimeWithoutAnOperatorAndWithoutTraining) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  world.Round(1, {0, 1}, 90);  // there was no operator for 60 s
  world.observed().rendezvous.changes = {{.round = 1,
                                          .cause = protocol::FailureCause::kInfrastructure,
                                          .departures = {{.slot = 1}},
                                          .recovery_seconds = 30,
                                          .unfinished_seconds = 2}};
  const api::GoodputStatus goodput = Pass(world, 60);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.rendezvous, 30);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.recompute, 2);
  EXPECT_DOUBLE_EQ(goodput.productive_seconds, 28);
}

// A member that was in round 1 reports the whole time; one that joined round 2 knows of that round only.
TEST(Goodput, CountsBreaksBetweenTwoStepsAsOneStandstill) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  world.Round(3, {0, 1}, 90);  // there was no operator for 60 s
  const rendezvous::RoundChange second{.round = 2, .recovery_seconds = 10, .recovered_in = 3};
  world.observed().rendezvous.changes = {{.round = 1, .recovery_seconds = 30, .recovered_in = 3}, second};
  EXPECT_DOUBLE_EQ(Pass(world, 60).lost_seconds.rendezvous, 30);
  world.observed().rendezvous.changes[0].recovery_seconds = 32;
  EXPECT_DOUBLE_EQ(Pass(world, 1).lost_seconds.rendezvous, 32) << "a correction";
  world.Round(4, {0, 1}, 95);
  world.observed().rendezvous.changes.push_back({.round = 3, .recovery_seconds = 5, .recovered_in = 4});
  EXPECT_DOUBLE_EQ(Pass(world, 10).lost_seconds.rendezvous, 37) << "after a step";
}

TEST(Goodput, CountsTheTimeOfAHungStepAsStalled) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  (void)Pass(world, 50);
  world.Round(2, {0, 1}, 2);
  world.observed().rendezvous.changes = {{.round = 1,
                                          .cause = protocol::FailureCause::kHang,
                                          .departures = {{.slot = 1}},
                                          .recovery_seconds = 1,
                                          .unfinished_seconds = 30}};
  const api::GoodputStatus goodput = Pass(world, 1);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.stalled, 30);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.rendezvous, 1);
  EXPECT_DOUBLE_EQ(goodput.productive_seconds, 20);
}

TEST(Goodput, CountsTheTimeThatOnlyPeopleCanEndAsStalled) {
  GoodputLedger ledger({.since = WallTime(), .activity = Activity::kStalled, .productive_seconds = 4});
  ledger.Book(WallTime(std::chrono::seconds(10)), {});
  EXPECT_DOUBLE_EQ(ledger.lost().stalled, 6);
  EXPECT_DOUBLE_EQ(ledger.status().ratio, 0.4);
}

TEST(Goodput, CountsEachCheckpointsStallOnce) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  rendezvous::RendezvousView& view = world.observed().rendezvous;
  view.saves = {{.step = 5, .uri = "a", .stall_seconds = 1}, {.step = 10, .uri = "b", .stall_seconds = 2}};
  view.checkpoint = view.saves.back();
  for (int i = 0; i < 3; ++i) {
    view.last_progress_time += std::chrono::seconds(10);
    (void)Pass(world, 10);
  }
  EXPECT_DOUBLE_EQ(world.observed().job.status.goodput->lost_seconds.checkpoint, 3);
  EXPECT_DOUBLE_EQ(world.observed().job.status.goodput->productive_seconds, 27);
  view.saves.push_back({.step = 15, .uri = "c", .stall_seconds = 4});
  view.checkpoint = view.saves.back();
  view.last_progress_time += std::chrono::seconds(10);
  EXPECT_DOUBLE_EQ(Pass(world, 10).lost_seconds.checkpoint, 7) << "that of step 10 was booked before";
}

TEST(Goodput, ContinuesWhileARestartedOperatorHasNoReports) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  const rendezvous::RendezvousView known = world.observed().rendezvous;
  world.observed().rendezvous = {};
  EXPECT_EQ(Pass(world, 30).activity, Activity::kTraining);
  world.observed().rendezvous = known;
  world.observed().rendezvous.last_progress_time = world.observed().now;
  EXPECT_DOUBLE_EQ(Pass(world, 1).productive_seconds, 31);
}

TEST(Goodput, IsNotWrittenWhileNothingChanges) {
  JobWorld world;
  (void)Pass(world, 0);
  const api::TrainingJobStatus before = world.observed().job.status;
  (void)Pass(world, 3600);
  EXPECT_EQ(world.observed().job.status, before);
}

// A write causes another pass: if that one wrote again, it would never end.
TEST(Goodput, IsNotWrittenForDigitsThatTheStatusDoesNotKeep) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  world.Round(2, {0, 1}, 2);
  world.observed().rendezvous.changes = {{.round = 1,
                                          .cause = protocol::FailureCause::kInfrastructure,
                                          .departures = {{.slot = 1, .detection_seconds = 0.1234567891}},
                                          .recovery_seconds = 1.0 / 3}};
  (void)Pass(world, 1);
  const api::TrainingJobStatus before = world.observed().job.status;
  ASSERT_EQ(before.restarts.size(), 1U);
  (void)Pass(world, 1);
  EXPECT_EQ(world.observed().job.status, before);
}

// All pods have reported the end of the training and are gone.
JobWorld AtItsEnd() {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  world.observed().pods.clear();
  world.observed().rendezvous.completed = true;
  world.observed().rendezvous.world_size = 0;
  return world;
}

TEST(Goodput, CountsTheTimeAfterTheLastStepAsWaitingForTheLastCheckpoint) {
  JobWorld world = AtItsEnd();
  // Not when the pass before the last one was, nor when it was reported.
  world.observed().rendezvous.step_time = world.observed().now + std::chrono::seconds(56);
  const api::GoodputStatus goodput = Pass(world, 60);
  EXPECT_DOUBLE_EQ(goodput.productive_seconds, 56);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.checkpoint, 4);
  EXPECT_DOUBLE_EQ(Pass(world, 60).productive_seconds, 56);
}

TEST(Goodput, EndsWithTheJob) {
  JobWorld world = AtItsEnd();
  EXPECT_DOUBLE_EQ(SumOf(Pass(world, 60)), 60);
  EXPECT_DOUBLE_EQ(SumOf(Pass(world, 600)), 60);
}

TEST(Goodput, EndsWithTheJobWhenAPassWasLaterThanThat) {
  JobWorld world;
  Observed& observed = world.observed();
  world.Running(0).Running(1).Round(1, {0, 1}, 1);
  (void)Pass(world, 0);
  world.Round(1, {0, 1}, 90);
  observed.rendezvous.last_progress_time = observed.now + std::chrono::seconds(50);
  observed.rendezvous.step_time = observed.now + std::chrono::seconds(56);
  EXPECT_DOUBLE_EQ(SumOf(Pass(world, 60)), 60);
  observed.pods.clear();
  world.Succeeded(0).Succeeded(1);
  for (Pod& pod : observed.pods)
    pod.ended = observed.now - std::chrono::seconds(3);  // plus one: the kubelet's time is cut
  const api::GoodputStatus goodput = Pass(world, 5);
  EXPECT_DOUBLE_EQ(SumOf(goodput), 58);
  EXPECT_DOUBLE_EQ(goodput.lost_seconds.checkpoint, 2);
}

// In any order of events the seconds add up to the time since the first admission, and none is counted twice
// or negative.
TEST(Goodput, SumsToTheWallTimeWhateverHappens) {
  EXPECT_TRUE(rc::check([] {
    JobWorld world;
    const WallTime start = world.observed().now;
    int64_t round = 0;
    const int steps = *rc::gen::inRange(1, 40);
    for (int i = 0; i < steps; ++i) {
      rendezvous::RendezvousView& view = world.observed().rendezvous;
      switch (*rc::gen::inRange(0, 8)) {
        case 0: world.observed().pods.clear(); break;
        case 1:
          world.observed().pods.clear();
          world.Running(0).Running(1);
          break;
        case 2: world.Round(++round, {0, 1}, *rc::gen::inRange(0, 50)); break;
        case 3:
          view.world_size = 0;
          view.members.clear();
          view.changes.push_back(
              {.round = round, .cause = protocol::FailureCause::kHang, .departures = {{.slot = 1}}});
          break;
        case 4:
          if (!view.changes.empty()) {
            view.changes.back().recovery_seconds = 1;
            view.changes.back().unfinished_seconds = *rc::gen::inRange(0, 100);
          }
          break;
        case 5: world.observed().job.spec.suspend = *rc::gen::arbitrary<bool>(); break;
        case 6:
          view.checkpoint = {.step = i, .uri = std::to_string(i), .stall_seconds = 1.0 * i};
          view.saves.push_back(view.checkpoint);
          view.last_progress_time = world.observed().now;
          break;
        default: view = {};
      }
      (void)Pass(world, *rc::gen::inRange(0, 5000) / 100.0);
    }
    // A final change of activity accounts everything up to then.
    world.observed().job.spec.suspend = !world.observed().job.spec.suspend;
    if (!world.observed().job.status.goodput) return;
    const api::GoodputStatus goodput = Pass(world, 1);
    const double wall = Seconds(world.observed().now - *goodput.since).count();
    RC_ASSERT(std::abs(SumOf(goodput) - wall) < 0.05);  // six digits are stored
    RC_ASSERT(*goodput.since >= start);
    for (const double part :
         {goodput.productive_seconds, goodput.lost_seconds.scheduling, goodput.lost_seconds.startup,
          goodput.lost_seconds.rendezvous, goodput.lost_seconds.checkpoint, goodput.lost_seconds.recompute,
          goodput.lost_seconds.stalled}) {
      RC_ASSERT(part >= 0);
    }
  }));
}

}  // namespace
}  // namespace lockstep::reconcile

#include "operator/reconcile/force_delete.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using std::chrono::seconds;
using testing::ActionsOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobWorld;

const Node kLost{.conditions = {{"Ready", "Unknown"}}};
const Node kGood{.conditions = {{"Ready", "True"}}};

// The deletion of the pod of slot 1 was requested this many seconds ago.
JobWorld WorldWithALeavingPod(int asked_seconds_ago) {
  JobWorld world;
  world.Running(0);
  Pod& pod = world.Add(1, PodPhase::kRunning);
  pod.deleting = true;
  pod.deletion_requested = world.observed().now - seconds(asked_seconds_ago);
  world.observed().nodes = {{"node-0", kGood}, {"node-1", kLost}};
  return world;
}

TEST(ForceDelete, EndsPodsOfDeadNodesOnceTheTimeHasPassed) {
  JobWorld world = WorldWithALeavingPod(119);
  const Plan early = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(early), IsEmpty());
  EXPECT_EQ(early.requeue_after, seconds(1));
  world.observed().now += seconds(1);
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete job-worker-1 by force"));
}

TEST(ForceDelete, LeavesPodsToTheirKubeletsWhileTheseAnswer) {
  JobWorld world = WorldWithALeavingPod(9999);
  (*world.observed().nodes)["node-1"] = kGood;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), IsEmpty());
}

TEST(ForceDelete, EndsPodsOfNodesThatWereRemoved) {
  JobWorld world = WorldWithALeavingPod(120);
  world.observed().nodes->erase("node-1");
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete job-worker-1 by force"));
}

TEST(ForceDelete, DoesNothingWhenNodesAreUnknown) {
  JobWorld world = WorldWithALeavingPod(9999);
  world.observed().nodes.reset();
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), IsEmpty());
}

TEST(ForceDelete, LetsADeletedJobGoToo) {
  JobWorld world = WorldWithALeavingPod(120);
  world.observed().job.metadata.deletion_timestamp = world.observed().now;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("delete job-worker-0", "delete job-worker-1 by force"));
}

}  // namespace
}  // namespace lockstep::reconcile

// Random worlds against the guarantees of the reconciler: in any order of events, with failures and late
// observations, the same end is reached, and nothing is created twice on the way.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "tests/support/world_model.h"

namespace lockstep::reconcile {
namespace {

using testing::WorldModel;

constexpr int32_t kMaxReplicas = 4;
constexpr int32_t kMaxRestarts = 3;

struct DesiredState {
  int32_t replicas = 2;
  bool suspend = false;
  int charged_failures = 0;
};

void DoSomething(WorldModel& world, DesiredState& desired) {
  const auto index = *rc::gen::inRange<std::size_t>(0, 8);
  switch (*rc::gen::inRange(0, 15)) {
    case 0:
    case 1:
    case 2: world.Reconcile(); break;
    case 3: world.SyncCaches(); break;
    case 4: world.SyncPods(); break;
    case 5: world.StartPods(); break;
    case 6: {
      const int exit_code = *rc::gen::element(1, 5, 137, 143);
      desired.charged_failures += exit_code == 143 ? 0 : 1;
      world.FailPod(index, exit_code);
      break;
    }
    case 7: world.FinishDeletions(); break;
    case 8: world.DeletePod(index); break;
    case 9: world.RestartOperator(); break;
    case 10:
      desired.replicas = *rc::gen::inRange(1, kMaxReplicas + 1);
      world.Scale(desired.replicas);
      break;
    case 11:
      desired.suspend = *rc::gen::arbitrary<bool>();
      world.Suspend(desired.suspend);
      break;
    case 12:
      world.FailNextWrite(
          *rc::gen::element(ErrorCode::kConflict, ErrorCode::kUnavailable, ErrorCode::kThrottled));
      break;
    case 13: world.LoseNextAnswer(); break;
    default: world.Advance(std::chrono::seconds(20));
  }
}

void CheckAlways(const WorldModel& world, const DesiredState& desired) {
  RC_ASSERT(world.pods().size() <= static_cast<std::size_t>(kMaxReplicas));
  RC_ASSERT(world.attempt() <= kMaxRestarts);
  RC_ASSERT(world.attempt() <= desired.charged_failures);
}

void CheckEnd(const WorldModel& world, const DesiredState& desired) {
  if (world.state() == "Failed") {
    RC_ASSERT(desired.charged_failures > kMaxRestarts);
    for (const Json& pod : world.pods()) RC_ASSERT(StringAt(pod, {"status", "phase"}) != "Running");
    return;
  }
  const std::size_t wanted = desired.suspend ? 0 : static_cast<std::size_t>(desired.replicas);
  RC_ASSERT(world.pods().size() == wanted);
  std::set<std::string> slots;
  for (const Json& pod : world.pods()) {
    RC_ASSERT(StringAt(pod, {"status", "phase"}) == "Running");
    slots.insert(StringAt(pod, {"metadata", "labels", "lockstep.dev/slot"}));
  }
  RC_ASSERT(slots.size() == wanted);
  RC_ASSERT(world.state() == (desired.suspend ? "Suspended" : "Starting"));
}

TEST(ReconcilerProperties, AnyWorldSettlesToWhatTheUserAskedFor) {
  EXPECT_TRUE(rc::check([] {
    DesiredState desired;
    WorldModel world(desired.replicas, kMaxReplicas, kMaxRestarts);
    const int steps = *rc::gen::inRange(0, 60);
    for (int i = 0; i < steps; ++i) {
      DoSomething(world, desired);
      CheckAlways(world, desired);
    }
    RC_ASSERT(world.Settle());
    CheckEnd(world, desired);
  }));
}

// A world in which each failure recreates all pods, and templates change, settles as well.
TEST(ReconcilerProperties, RecreatedWorldsSettleToo) {
  EXPECT_TRUE(rc::check([] {
    DesiredState desired;
    WorldModel world(desired.replicas, kMaxReplicas, kMaxRestarts);
    world.PatchSpec({{"failurePolicy", {{"restartStrategy", "Recreate"}}}});
    const int steps = *rc::gen::inRange(0, 60);
    for (int i = 0; i < steps; ++i) {
      if (*rc::gen::inRange(0, 10) == 0) {
        const std::string image = *rc::gen::element<std::string>("a", "b");
        world.PatchSpec(
            {{"worker",
              {{"template",
                {{"spec", {{"containers", Json::array({{{"name", "trainer"}, {"image", image}}})}}}}}}}});
      }
      DoSomething(world, desired);
      CheckAlways(world, desired);
    }
    RC_ASSERT(world.Settle());
    CheckEnd(world, desired);
  }));
}

// Nodes die and return, with pods on them that cannot be ended: none of it is charged.
TEST(ReconcilerProperties, WorldsOfDyingNodesSettleOnThoseThatLive) {
  EXPECT_TRUE(rc::check([] {
    DesiredState desired;
    WorldModel world(desired.replicas, kMaxReplicas, kMaxRestarts);
    world.AddNodes(3);
    world.Advance(std::chrono::seconds(200));  // beyond runPolicy.forceDeleteAfterSeconds
    const int steps = *rc::gen::inRange(0, 60);
    for (int i = 0; i < steps; ++i) {
      const auto index = *rc::gen::inRange<std::size_t>(0, 2);
      switch (*rc::gen::inRange(0, 8)) {
        case 0: world.LoseNode(index); break;
        case 1: world.HealNode(index); break;
        default: DoSomething(world, desired);
      }
      CheckAlways(world, desired);
    }
    RC_ASSERT(world.Settle());
    CheckEnd(world, desired);
    const std::vector<std::string> lost = world.lost_nodes();
    for (const Json& pod : world.pods()) {
      if (world.state() == "Failed") break;
      RC_ASSERT(std::find(lost.begin(), lost.end(), StringAt(pod, {"spec", "nodeName"})) == lost.end());
    }
  }));
}

// A rule gives pods up: their slots stay free, but elasticPolicy.minReplicas pods always remain.
TEST(ReconcilerProperties, WorldsThatShrinkSettleWithoutWhatWasGivenUp) {
  EXPECT_TRUE(rc::check([] {
    DesiredState desired;
    WorldModel world(desired.replicas, kMaxReplicas, kMaxRestarts);
    const Json codes = {{"operator", "In"}, {"values", {42}}};
    world.PatchSpec(
        {{"failurePolicy", {{"rules", Json::array({{{"action", "ShrinkJob"}, {"onExitCodes", codes}}})}}}});
    const int steps = *rc::gen::inRange(0, 60);
    for (int i = 0; i < steps; ++i) {
      if (*rc::gen::inRange(0, 5) == 0) {
        ++desired.charged_failures;  // charged if the job must not shrink
        world.FailPod(*rc::gen::inRange<std::size_t>(0, 8), 42);
      } else {
        DoSomething(world, desired);
      }
      CheckAlways(world, desired);
    }
    RC_ASSERT(world.Settle());
    const Json job = world.job();
    const Json* given_up = FindJson(job, {"status", "givenUpSlots"});
    if (given_up != nullptr) desired.replicas -= static_cast<int32_t>(given_up->size());
    RC_ASSERT(desired.replicas >= 1);
    CheckEnd(world, desired);
  }));
}

TEST(ReconcilerProperties, ADeletedJobIsAlwaysRemovedWithItsPods) {
  EXPECT_TRUE(rc::check([] {
    DesiredState desired;
    WorldModel world(desired.replicas, kMaxReplicas, kMaxRestarts);
    const int steps = *rc::gen::inRange(0, 40);
    const int deleted_at = *rc::gen::inRange(0, 40);
    for (int i = 0; i < steps; ++i) {
      if (i == deleted_at) world.DeleteJob();
      DoSomething(world, desired);
    }
    world.DeleteJob();
    RC_ASSERT(world.Settle());
    RC_ASSERT(world.job().is_null());
    RC_ASSERT(world.pods().empty());
  }));
}

// Regardless of what happens to the pods that remove its checkpoints, and to the operator.
TEST(ReconcilerProperties, ADeletedJobIsRemovedEvenIfItsCheckpointsCannotBe) {
  EXPECT_TRUE(rc::check([] {
    DesiredState desired;
    WorldModel world(desired.replicas, kMaxReplicas, kMaxRestarts);
    world.PatchSpec({{"checkpoint", {{"uri", "s3://bucket/a"}, {"deleteWithJob", true}}}});
    const int steps = *rc::gen::inRange(0, 20);
    for (int i = 0; i < steps; ++i) DoSomething(world, desired);
    world.PretendToHaveTrained();
    world.DeleteJob();
    const int more = *rc::gen::inRange(0, 60);
    for (int i = 0; i < more; ++i) {
      if (*rc::gen::inRange(0, 10) == 0) world.SucceedPod(0);
      DoSomething(world, desired);
    }
    // No faults from now on, but the pod never ends: longer than the operator waits for it.
    for (int pass = 0; pass < 60 && !world.job().is_null(); ++pass) (void)world.Settle();
    RC_ASSERT(world.job().is_null());
    world.FinishDeletions();
    RC_ASSERT(world.pods().empty());
  }));
}

// The pods of the highest slots are deleted; nothing is charged or reported as a failure.
TEST(ReconcilerProperties, ScalesUpAndDownWithoutChargingRestarts) {
  EXPECT_TRUE(rc::check([] {
    const int32_t standbys = *rc::gen::inRange(0, 3);
    WorldModel world(2, kMaxReplicas, 0, standbys);
    RC_ASSERT(world.Settle());
    auto sizes = *rc::gen::resize(5, rc::gen::container<std::vector<int32_t>>(
                                         rc::gen::resize(100, rc::gen::inRange(1, kMaxReplicas + 1))));
    sizes.insert(sizes.begin(), {4, 1, 3});
    for (const int32_t replicas : sizes) {
      world.Scale(replicas);
      RC_ASSERT(world.Settle());
      std::set<int> slots;
      for (const Json& pod : world.pods()) {
        slots.insert(std::stoi(StringAt(pod, {"metadata", "labels", "lockstep.dev/slot"})));
      }
      RC_ASSERT(static_cast<int32_t>(slots.size()) == replicas + standbys);
      RC_ASSERT(*slots.rbegin() == replicas + standbys - 1);
      RC_ASSERT(world.attempt() == 0);
      RC_ASSERT(IntAt(world.job(), {"status", "replicas"}) == replicas);
      RC_ASSERT(FindJson(world.job(), {"status", "restarts"}) == nullptr ||
                world.job()["status"]["restarts"].empty());
    }
  }));
}

TEST(ReconcilerProperties, AfterOneSuccessNoPodIsStartedAgain) {
  EXPECT_TRUE(rc::check([] {
    DesiredState desired;
    WorldModel world(3, kMaxReplicas, kMaxRestarts);
    RC_ASSERT(world.Settle());
    world.SucceedPod(*rc::gen::inRange<std::size_t>(0, 3));
    world.SyncCaches();
    const std::size_t pods = world.pods().size();
    world.FailPod(*rc::gen::inRange<std::size_t>(0, 3), 1);
    RC_ASSERT(world.Settle());
    RC_ASSERT(world.pods().size() <= pods);
    for (std::size_t i = 0; i < 3; ++i) world.SucceedPod(i);
    RC_ASSERT(world.Settle());
    RC_ASSERT(world.state() == "Complete");
  }));
}

}  // namespace
}  // namespace lockstep::reconcile

// Random worlds against the promises of the reconciler: whatever happens, in whatever order, with whatever
// fails or is seen late, the same end is reached, and nothing is doubled on the way.

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

struct Wish {
  int32_t replicas = 2;
  bool suspend = false;
  int charged_failures = 0;
};

void DoSomething(WorldModel& world, Wish& wish) {
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
      wish.charged_failures += exit_code == 143 ? 0 : 1;
      world.FailPod(index, exit_code);
      break;
    }
    case 7: world.FinishDeletions(); break;
    case 8: world.DeletePod(index); break;
    case 9: world.RestartOperator(); break;
    case 10:
      wish.replicas = *rc::gen::inRange(1, kMaxReplicas + 1);
      world.Scale(wish.replicas);
      break;
    case 11:
      wish.suspend = *rc::gen::arbitrary<bool>();
      world.Suspend(wish.suspend);
      break;
    case 12:
      world.FailNextWrite(
          *rc::gen::element(ErrorCode::kConflict, ErrorCode::kUnavailable, ErrorCode::kThrottled));
      break;
    case 13: world.LoseNextAnswer(); break;
    default: world.Advance(std::chrono::seconds(20));
  }
}

void CheckAlways(const WorldModel& world, const Wish& wish) {
  RC_ASSERT(world.pods().size() <= static_cast<std::size_t>(kMaxReplicas));
  RC_ASSERT(world.attempt() <= kMaxRestarts);
  RC_ASSERT(world.attempt() <= wish.charged_failures);
}

void CheckEnd(const WorldModel& world, const Wish& wish) {
  if (world.state() == "Failed") {
    RC_ASSERT(wish.charged_failures > kMaxRestarts);
    for (const Json& pod : world.pods()) RC_ASSERT(StringAt(pod, {"status", "phase"}) != "Running");
    return;
  }
  const std::size_t wanted = wish.suspend ? 0 : static_cast<std::size_t>(wish.replicas);
  RC_ASSERT(world.pods().size() == wanted);
  std::set<std::string> slots;
  for (const Json& pod : world.pods()) {
    RC_ASSERT(StringAt(pod, {"status", "phase"}) == "Running");
    slots.insert(StringAt(pod, {"metadata", "labels", "lockstep.dev/slot"}));
  }
  RC_ASSERT(slots.size() == wanted);
  RC_ASSERT(world.state() == (wish.suspend ? "Suspended" : "Starting"));
}

TEST(ReconcilerProperties, AnyWorldSettlesToWhatTheUserAskedFor) {
  EXPECT_TRUE(rc::check([] {
    Wish wish;
    WorldModel world(wish.replicas, kMaxReplicas, kMaxRestarts);
    const int steps = *rc::gen::inRange(0, 60);
    for (int i = 0; i < steps; ++i) {
      DoSomething(world, wish);
      CheckAlways(world, wish);
    }
    RC_ASSERT(world.Settle());
    CheckEnd(world, wish);
  }));
}

// A world in which all pods go at each failure, and templates change, comes to rest as well.
TEST(ReconcilerProperties, RecreatedWorldsSettleToo) {
  EXPECT_TRUE(rc::check([] {
    Wish wish;
    WorldModel world(wish.replicas, kMaxReplicas, kMaxRestarts);
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
      DoSomething(world, wish);
      CheckAlways(world, wish);
    }
    RC_ASSERT(world.Settle());
    CheckEnd(world, wish);
  }));
}

// Nodes die and come back, with pods on them that nobody can end: none of it costs an attempt.
TEST(ReconcilerProperties, WorldsOfDyingNodesSettleOnThoseThatLive) {
  EXPECT_TRUE(rc::check([] {
    Wish wish;
    WorldModel world(wish.replicas, kMaxReplicas, kMaxRestarts);
    world.AddNodes(3);
    world.Advance(std::chrono::seconds(200));  // beyond runPolicy.forceDeleteAfterSeconds
    const int steps = *rc::gen::inRange(0, 60);
    for (int i = 0; i < steps; ++i) {
      const auto index = *rc::gen::inRange<std::size_t>(0, 2);
      switch (*rc::gen::inRange(0, 8)) {
        case 0: world.LoseNode(index); break;
        case 1: world.HealNode(index); break;
        default: DoSomething(world, wish);
      }
      CheckAlways(world, wish);
    }
    RC_ASSERT(world.Settle());
    CheckEnd(world, wish);
    const std::vector<std::string> lost = world.lost_nodes();
    for (const Json& pod : world.pods()) {
      if (world.state() == "Failed") break;
      RC_ASSERT(std::find(lost.begin(), lost.end(), StringAt(pod, {"spec", "nodeName"})) == lost.end());
    }
  }));
}

// A rule gives pods up: as many slots stay free, never fewer than elasticPolicy.minReplicas are left.
TEST(ReconcilerProperties, WorldsThatShrinkSettleWithoutWhatWasGivenUp) {
  EXPECT_TRUE(rc::check([] {
    Wish wish;
    WorldModel world(wish.replicas, kMaxReplicas, kMaxRestarts);
    const Json codes = {{"operator", "In"}, {"values", {42}}};
    world.PatchSpec(
        {{"failurePolicy", {{"rules", Json::array({{{"action", "ShrinkJob"}, {"onExitCodes", codes}}})}}}});
    const int steps = *rc::gen::inRange(0, 60);
    for (int i = 0; i < steps; ++i) {
      if (*rc::gen::inRange(0, 5) == 0) {
        ++wish.charged_failures;  // it is where the job must not shrink
        world.FailPod(*rc::gen::inRange<std::size_t>(0, 8), 42);
      } else {
        DoSomething(world, wish);
      }
      CheckAlways(world, wish);
    }
    RC_ASSERT(world.Settle());
    const Json job = world.job();
    const Json* given_up = FindJson(job, {"status", "givenUpSlots"});
    if (given_up != nullptr) wish.replicas -= static_cast<int32_t>(given_up->size());
    RC_ASSERT(wish.replicas >= 1);
    CheckEnd(world, wish);
  }));
}

TEST(ReconcilerProperties, ADeletedJobAlwaysGoesAndTakesItsPodsAlong) {
  EXPECT_TRUE(rc::check([] {
    Wish wish;
    WorldModel world(wish.replicas, kMaxReplicas, kMaxRestarts);
    const int steps = *rc::gen::inRange(0, 40);
    const int deleted_at = *rc::gen::inRange(0, 40);
    for (int i = 0; i < steps; ++i) {
      if (i == deleted_at) world.DeleteJob();
      DoSomething(world, wish);
    }
    world.DeleteJob();
    RC_ASSERT(world.Settle());
    RC_ASSERT(world.job().is_null());
    RC_ASSERT(world.pods().empty());
  }));
}

// Whatever becomes of the pods that remove its checkpoints, and of the operator meanwhile.
TEST(ReconcilerProperties, ADeletedJobGoesWhetherItsCheckpointsCanBeRemovedOrNot) {
  EXPECT_TRUE(rc::check([] {
    Wish wish;
    WorldModel world(wish.replicas, kMaxReplicas, kMaxRestarts);
    world.PatchSpec({{"checkpoint", {{"uri", "s3://bucket/a"}, {"deleteWithJob", true}}}});
    const int steps = *rc::gen::inRange(0, 20);
    for (int i = 0; i < steps; ++i) DoSomething(world, wish);
    world.PretendToHaveTrained();
    world.DeleteJob();
    const int more = *rc::gen::inRange(0, 60);
    for (int i = 0; i < more; ++i) {
      if (*rc::gen::inRange(0, 10) == 0) world.SucceedPod(0);
      DoSomething(world, wish);
    }
    // From now on nobody does any harm, but the pod never ends: longer than anybody waits for it.
    for (int pass = 0; pass < 60 && !world.job().is_null(); ++pass) (void)world.Settle();
    RC_ASSERT(world.job().is_null());
    world.FinishDeletions();
    RC_ASSERT(world.pods().empty());
  }));
}

// The pods of the highest slots go; nothing is charged, and nothing told as a failure.
TEST(ReconcilerProperties, ScalesUpAndDownWithoutChargingAnybody) {
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

TEST(ReconcilerProperties, AfterOneSuccessNobodyIsStartedAgain) {
  EXPECT_TRUE(rc::check([] {
    Wish wish;
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

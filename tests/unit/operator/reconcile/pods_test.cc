#include "operator/reconcile/pods.h"

#include <gtest/gtest.h>

namespace lockstep::reconcile {
namespace {

Pod Parsed(const std::string& status, const std::string& metadata = "{}") {
  Json json = {{"metadata", *ParseJson(metadata)}, {"status", *ParseJson(status)}};
  return PodFromJson(PodFields().Apply(json), "trainer");
}

TEST(PodFromJson, JudgesByTheTrainerWhateverTheSidecarsDo) {
  const struct {
    const char* name;
    const char* status;
    PodPhase phase;
    int exit_code;
  } cases[] = {
      {"new", "{}", PodPhase::kPending, -1},
      {"running", R"({"phase": "Running"})", PodPhase::kRunning, -1},
      {"trainer ended, sidecar runs",
       R"({"phase": "Running", "containerStatuses": [{"name": "side", "state": {"running": {}}},
           {"name": "trainer", "state": {"terminated": {"exitCode": 0}}}]})",
       PodPhase::kSucceeded, 0},
      {"sidecar failed after the trainer succeeded",
       R"({"phase": "Failed", "containerStatuses": [{"name": "side", "state": {"terminated": {"exitCode": 1}}},
           {"name": "trainer", "state": {"terminated": {"exitCode": 0}}}]})",
       PodPhase::kSucceeded, 0},
      {"trainer failed",
       R"({"phase": "Failed", "containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 3}}}]})",
       PodPhase::kFailed, 3},
      {"never started", R"({"phase": "Failed", "reason": "OutOfcpu", "message": "no room"})",
       PodPhase::kFailed, -1},
  };
  for (const auto& test : cases) {
    const Pod pod = Parsed(test.status);
    EXPECT_EQ(pod.phase, test.phase) << test.name;
    EXPECT_EQ(pod.exit_code.value_or(-1), test.exit_code) << test.name;
  }
}

TEST(PodFromJson, RecognizesAUserProgramByItsLauncher) {
  EXPECT_TRUE(Parsed(R"({"initContainerStatuses": [{"name": "lockstep-launcher"}]})").runs_program);
  EXPECT_FALSE(Parsed(R"({"initContainerStatuses": [{"name": "other"}]})").runs_program);
}

TEST(PodFromJson, FindsTheExplainingMessage) {
  EXPECT_EQ(Parsed(R"({"containerStatuses": [{"name": "trainer", "state": {"terminated":
      {"exitCode": 3, "reason": "Error", "message": "no such data set"}}}]})")
                .message,
            "no such data set");
  EXPECT_EQ(Parsed(R"({"containerStatuses": [{"name": "trainer", "state": {"terminated":
      {"exitCode": 137, "reason": "OOMKilled"}}}]})")
                .message,
            "OOMKilled");
  EXPECT_EQ(Parsed(R"({"phase": "Failed", "reason": "OutOfcpu", "message": "no room"})").message, "no room");
}

TEST(PodFromJson, RecognizesDisruptions) {
  const Pod evicted =
      Parsed(R"({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory",
      "conditions": [{"type": "DisruptionTarget", "status": "True"}]})");
  EXPECT_TRUE(evicted.disrupted);
  EXPECT_FALSE(evicted.overstepped);
  EXPECT_TRUE(Parsed(R"({"phase": "Failed", "reason": "Terminated"})").disrupted) << "its node is shut down";
  EXPECT_TRUE(Parsed(R"({"conditions": [{"type": "DisruptionTarget", "status": "True"}]})").disrupted);
  EXPECT_FALSE(Parsed(R"({"phase": "Failed", "reason": "OutOfcpu"})").disrupted);
}

TEST(PodFromJson, RecognizesAnEvictionForItsOwnUseOfStorage) {
  const Pod pod = Parsed(R"({"phase": "Failed", "reason": "Evicted",
      "message": "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Gi\". ",
      "containerStatuses": [{"name": "trainer", "state": {"terminated":
          {"exitCode": 143, "reason": "Error", "message": "SIGTERM"}}}]})");
  EXPECT_TRUE(pod.overstepped);
  EXPECT_FALSE(pod.disrupted);
  EXPECT_EQ(pod.message, "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Gi\". ")
      << "not what the worker wrote";
}

TEST(PodFromJson, DistinguishesStuckContainersFromStartingOnes) {
  EXPECT_EQ(Parsed(R"({"containerStatuses": [{"name": "trainer", "state": {"waiting":
      {"reason": "ContainerCreating"}}}]})")
                .waiting_reason,
            "");
  EXPECT_EQ(Parsed(R"({"initContainerStatuses": [{"name": "init", "state": {"waiting":
      {"reason": "ErrImagePull", "message": "m"}}}]})")
                .waiting_message,
            "m");
}

TEST(PodFromJson, NamesTheUnhealthyDevicesOfAllContainers) {
  const Pod pod = Parsed(R"({"containerStatuses": [
      {"name": "side", "allocatedResourcesStatus": [
          {"name": "claim:net", "resources": [{"resourceID": "nic", "health": "Unhealthy"}]}]},
      {"name": "trainer", "allocatedResourcesStatus": [
          {"name": "nvidia.com/gpu", "resources": [{"resourceID": "gpu-2", "health": "Unhealthy"},
              {"resourceID": "gpu-0", "health": "Healthy"}, {"resourceID": "gpu-1", "health": "Unknown"}]}]}]})");
  EXPECT_EQ(pod.unhealthy_devices, (std::set<std::string>{"gpu-2 of nvidia.com/gpu", "nic of claim:net"}));
}

TEST(PodFromJson, CountsItsGpus) {
  const Json pod = *ParseJson(R"({"spec": {"containers": [
      {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}})");
  EXPECT_EQ(PodFromJson(PodFields().Apply(pod), "trainer").gpus, 4);
}

TEST(PodFromJson, ReadsLabelsAndAnnotationsOfOurs) {
  const Pod pod = Parsed("{}", R"({"name": "n", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "x",
      "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"lockstep.dev/slot": "12"},
      "annotations": {"lockstep.dev/attempt": "3", "large": "dropped"}})");
  EXPECT_EQ(pod.slot, 12);
  EXPECT_EQ(pod.attempt, 3);
  EXPECT_TRUE(pod.deleting);
  EXPECT_TRUE(pod.created.has_value());
  EXPECT_FALSE(Parsed("{}", R"({"annotations": {"lockstep.dev/attempt": "x"}})").attempt.has_value());
}

TEST(GroupPods, SortsOutSlotsBeyondTheWantedNumber) {
  std::vector<Pod> pods(4);
  pods[0].slot = 1;
  pods[1].slot = 5;
  pods[2].slot = std::nullopt;
  pods[3].slot = 0;
  const PodGroups groups = GroupPods(pods, 2);
  EXPECT_EQ(groups.slots.size(), 2U);
  EXPECT_EQ(groups.surplus.size(), 2U);
}

}  // namespace
}  // namespace lockstep::reconcile

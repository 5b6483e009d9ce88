#include "runtime/tools/kubectl_plugin/change_rules.h"

#include <gtest/gtest.h>

#include "runtime/common/base/time_text.h"
#include "tests/unit/runtime/tools/kubectl_plugin/running_job.h"

namespace lockstep::kubectl_plugin {
namespace {

const WallTime kRequested = *ParseTime("2026-01-02T03:10:00.7Z");

Json Without(Json job, const char* key) {
  job["spec"].erase(key);
  return job;
}

Json Ended() {
  return With(With(RunningJob(), "/status/state", R"("Complete")"), "/status/conditions",
              R"([{"type": "Complete", "status": "True", "reason": "TrainingDone", "message": "",
                   "lastTransitionTime": "2026-01-02T03:20:00Z"}])");
}

std::string Answer(const Result<bool>& may) {
  if (!may.ok()) return may.error().message;
  return *may ? "yes" : "is so";
}

TEST(MayScale, KeepsToTheBounds) {
  const auto scaled = [](const Json& job, int32_t replicas) { return Answer(MayScale(Read(job), replicas)); };
  EXPECT_EQ(scaled(RunningJob(), 1), "yes");
  EXPECT_EQ(scaled(RunningJob(), 4), "yes");
  EXPECT_EQ(scaled(RunningJob(), 3), "is so");
  EXPECT_EQ(scaled(RunningJob(), 5),
            "fashion has spec.elasticPolicy.maxReplicas 4: 5 pods would be too many");
  EXPECT_EQ(scaled(With(RunningJob(), "/spec/elasticPolicy/minReplicas", "2"), 1),
            "fashion has spec.elasticPolicy.minReplicas 2: 1 pod would be too few");
  const Json fixed = Without(RunningJob(), "elasticPolicy");
  EXPECT_EQ(scaled(fixed, 2),
            "fashion has a fixed size of 3 pods: give it spec.elasticPolicy, or suspend it first");
  EXPECT_EQ(scaled(With(fixed, "/spec/suspend", "true"), 2), "yes");
  EXPECT_EQ(scaled(Ended(), 2), "fashion has ended (Complete): none of its pods runs");
}

TEST(MaySuspend, OnlyWhatRuns) {
  const Json suspended = With(RunningJob(), "/spec/suspend", "true");
  EXPECT_EQ(Answer(MaySuspend(Read(RunningJob()))), "yes");
  EXPECT_EQ(Answer(MaySuspend(Read(suspended))), "is so");
  EXPECT_EQ(Answer(MayResume(Read(suspended))), "yes");
  EXPECT_EQ(Answer(MayResume(Read(RunningJob()))), "is so");
  EXPECT_FALSE(MaySuspend(Read(Ended())).ok());
}

TEST(MayCheckpoint, NeedsAPlaceOrAProgram) {
  const auto refused = [](const Json& job) {
    const auto may = MayCheckpoint(Read(job));
    return may.ok() ? "" : may.error().message;
  };
  EXPECT_EQ(refused(RunningJob()), "");
  EXPECT_EQ(refused(Without(RunningJob(), "checkpoint")),
            "fashion has no spec.checkpoint: there is no place to save to");
  EXPECT_EQ(refused(Without(RunningJob(), "training")), "");
  EXPECT_EQ(refused(With(RunningJob(), "/spec/suspend", "true")),
            "fashion is suspended: none of its pods runs");
}

TEST(MayProfile, NeedsStepsAndAPlaceForTheTraces) {
  const auto refused = [](const Json& job) {
    const auto may = MayProfile(Read(job));
    return may.ok() ? "" : may.error().message;
  };
  EXPECT_EQ(refused(RunningJob()), "");
  EXPECT_EQ(refused(Without(RunningJob(), "checkpoint")),
            "fashion has no spec.checkpoint: there is no place for the traces");
  EXPECT_EQ(refused(Without(RunningJob(), "training")),
            "fashion runs a program of your own, whose steps are not known");
  EXPECT_EQ(refused(With(RunningJob(), "/spec/suspend", "true")), "fashion is suspended: it makes no steps");
}

TEST(TimeOfSaveRequest, IsWhatTheApiServerWrote) {
  const Json object = Json::parse(R"({"metadata": {"managedFields": [
    {"manager": "kubectl-client-side-apply", "time": "2026-01-02T03:00:00Z", "fieldsV1": {"f:metadata": {"f:annotations": {".": {}}}}},
    {"manager": "kubectl-annotate", "time": "2026-01-02T03:10:00Z",
     "fieldsV1": {"f:metadata": {"f:annotations": {"f:lockstep.dev/save": {}}}}}]}})");
  EXPECT_EQ(FormatTime(TimeOfSaveRequest(object, {})), "2026-01-02T03:10:00Z");
  EXPECT_EQ(TimeOfSaveRequest(Json::object(), kRequested), kRequested);
}

TEST(IsAnswered, ByACheckpointThatCameAfterTheRequest) {
  const auto before = Read(RunningJob()).status.checkpoint;
  const auto answered = [&](const char* time) {
    return Answer(IsAnswered(Read(With(RunningJob(), "/status/checkpoint/time", time)), kRequested, before));
  };
  EXPECT_EQ(answered(R"("2026-01-02T03:09:20Z")"), "is so") << "is there already";
  EXPECT_EQ(answered(R"("2026-01-02T03:09:59Z")"), "is so")
      << "was stored before the request and reported later";
  EXPECT_EQ(answered(R"("2026-01-02T03:10:00Z")"), "yes") << "times of the API have whole seconds";
  EXPECT_EQ(Answer(IsAnswered(Read(Ended()), kRequested, before)),
            "fashion ended (Complete) before it saved the checkpoint");
  EXPECT_EQ(Answer(IsAnswered(Read(With(Ended(), "/status/checkpoint/time", R"("2026-01-02T03:20:00Z")")),
                              kRequested, before)),
            "yes")
      << "the one at its end";
}

}  // namespace
}  // namespace lockstep::kubectl_plugin

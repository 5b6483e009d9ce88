#include "operator/rendezvous/pod_feed.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

kube::Object Pod(const std::string& status, const std::string& metadata = "{}") {
  Json pod = *ParseJson(R"({"metadata": {"namespace": "team", "name": "job-worker-0", "uid": "pod-uid",
      "ownerReferences": [{"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
                           "name": "job", "uid": "job-uid", "controller": true}]}})");
  pod["metadata"].update(*ParseJson(metadata));
  pod["status"] = *ParseJson(status);
  return std::make_shared<const Json>(std::move(pod));
}

const char* const kRunning = R"({"phase": "Running"})";
const char* const kFailed =
    R"({"phase": "Failed", "containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 1, "message": "oh"}}}]})";
const char* const kTrainerEnded =
    R"({"phase": "Running", "containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 137}}}]})";
const char* const kSucceeded = R"({"phase": "Succeeded"})";

TEST(LossFrom, DistinguishesALostPodFromOneThatLeavesByItself) {
  const struct {
    const char* name;
    kube::ObjectChange change;
    std::string reason;  // "": no loss
  } cases[] = {
      {"runs", {nullptr, Pod(kRunning)}, ""},
      {"failed", {Pod(kRunning), Pod(kFailed)}, "exit code 1: oh"},
      {"trainer ended and its sidecar runs", {Pod(kRunning), Pod(kTrainerEnded)}, "exit code 137"},
      {"completed", {Pod(kRunning), Pod(kSucceeded)}, ""},
      {"is being deleted in good order", {Pod(kRunning), Pod(kRunning, R"({"deletionTimestamp": "x"})")}, ""},
      {"is gone", {Pod(kRunning), nullptr}, "the pod was deleted"},
      {"completed and is gone", {Pod(kSucceeded), nullptr}, ""},
      {"has no owner", {Pod(kRunning, R"({"ownerReferences": []})"), nullptr}, ""},
      {"has an owner of another kind",
       {Pod(kRunning, R"({"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job",
                                               "uid": "job-uid", "controller": true}]})"),
        nullptr},
       ""},
  };
  for (const auto& test : cases) {
    const auto loss = LossFrom(test.change, "trainer");
    EXPECT_EQ(loss.has_value() ? loss->end.reason : "", test.reason) << test.name;
    if (!loss) continue;
    EXPECT_EQ(loss->job, (protocol::JobIdentity{"team", "job", "job-uid"}));
    EXPECT_EQ(loss->end.pod_uid, "pod-uid");
  }
}

TEST(LossFrom, ReportsNodeAndReason) {
  Json pod = *Pod(kFailed);
  pod["spec"]["nodeName"] = "node-7";
  const auto failed = LossFrom({nullptr, std::make_shared<const Json>(pod)}, "trainer");
  EXPECT_EQ(failed->end.node, "node-7");
  EXPECT_EQ(failed->end.exit_code, 1);
  EXPECT_EQ(failed->end.cause, protocol::FailureCause::kInfrastructure);
  pod["status"]["reason"] = "Evicted";
  EXPECT_EQ(LossFrom({nullptr, std::make_shared<const Json>(pod)}, "trainer")->end.cause,
            protocol::FailureCause::kUserError);
  pod["status"]["conditions"] = Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}});
  EXPECT_EQ(LossFrom({nullptr, std::make_shared<const Json>(pod)}, "trainer")->end.cause,
            protocol::FailureCause::kPreemption);
}

}  // namespace
}  // namespace lockstep::rendezvous

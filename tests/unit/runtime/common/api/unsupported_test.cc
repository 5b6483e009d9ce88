#include "runtime/common/api/unsupported.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/api/validate.h"
#include "tests/unit/runtime/common/api/job_text.h"

namespace lockstep::api {
namespace {

std::vector<std::string> Refused(const Json& json) {
  std::vector<std::string> lines;
  for (const UnsupportedField& field : FindUnsupported(Parsed(json).spec)) lines.push_back(field.ToString());
  return lines;
}

struct UnsupportedCase {
  std::string name;
  std::string pointer;
  std::string value;
  std::string path;  // of the one refusal
};

class UnsupportedTest : public testing::TestWithParam<UnsupportedCase> {};

TEST_P(UnsupportedTest, IsRefusedByName) {
  const std::vector<std::string> refused = Refused(With(ValidJob(), GetParam().pointer, GetParam().value));
  ASSERT_EQ(refused.size(), 1u) << testing::PrintToString(refused);
  EXPECT_THAT(refused[0], testing::StartsWith(GetParam().path + ": "));
  EXPECT_THAT(refused[0], testing::HasSubstr(" is not implemented yet; "));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, UnsupportedTest,
    testing::Values(UnsupportedCase{"RemoteModule", "/spec/training/model",
                                    R"({"name": "torchscript", "torchscript": {"uri": "s3://b/m.pt"}})",
                                    "spec.training.model.torchscript.uri"},
                    UnsupportedCase{"Compression", "/spec/training/sync", R"({"compression": "topk"})",
                                    "spec.training.sync.compression"},
                    UnsupportedCase{"Gpu", "/spec/nprocPerNode", "\"gpu\"", "spec.nprocPerNode"},
                    UnsupportedCase{"PodMonitor", "/spec/observability", R"({"podMonitor": true})",
                                    "spec.observability.podMonitor"}),
    [](const testing::TestParamInfo<UnsupportedCase>& test_case) { return test_case.param.name; });

TEST(FindUnsupported, SaysWhatWorksNow) {
  EXPECT_THAT(Refused(With(ValidJob(), "/spec/training/sync", R"({"compression": "powersgd"})")),
              testing::ElementsAre(
                  "spec.training.sync.compression: powersgd is not implemented yet; use none, bf16 or fp16"));
}

TEST(FindUnsupported, PassesWhatIsBuilt) {
  EXPECT_THAT(Refused(ValidJob()), testing::ElementsAre());
  Json json =
      With(ValidJob(), "/spec/training",
           R"({"model": {"name": "cnn", "cnn": {"channels": [8]}}, "data": {"format": "idx", "path": "/d",
                       "sampler": "weighted", "classWeights": [1, 3], "augmentation": {"horizontalFlip": true, "cropPadding": 4}, "dropLast": true, "workers": 8, "prefetch": 8}, "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": true,
                       "weightDecay": 0.01, "clipNorm": 1}, "schedule": {"name": "step", "warmupSteps": 5,
                       "decayEverySteps": 5}, "globalBatchSize": 8, "microBatchSize": 4, "epochs": 2, "seed": 3,
                       "precision": "fp16", "determinism": "world", "balance": "speed", "strategy": "zero1", "zero1": {"copies": 2}, "evaluation": {"batchSize": 9},
                       "earlyStop": {"metric": "loss", "patience": 2}})");
  json = With(
      json, "/spec/checkpoint",
      R"({"uri": "abfs://box@acct.dfs.core.windows.net/c", "secretRef": {"name": "s"}, "interval": "Fixed", "meanTimeBetweenFailuresSeconds": 60, "intervalSteps": 5,
                  "intervalSeconds": 5, "keepLast": 1, "keepEverySteps": 10, "uploadBytesPerSecond": 100000, "deleteWithJob": true, "resume": 5, "restore": "Weights", "onTermination": "None",
                  "gracePeriodSeconds": 5})");
  json = With(json, "/spec/rendezvous", R"({"joinTimeoutSeconds": 5, "lastCallSeconds": 0})");
  json = With(json, "/spec/elasticPolicy",
              R"({"minReplicas": 1, "maxReplicas": 4, "growDelaySeconds": 0, "shrinkAfterSeconds": 5,
                  "metrics": [{"type": "Pods"}]})");
  json = With(
      json, "/spec/failurePolicy",
      R"({"maxRestarts": 0, "inPlaceLimit": 0, "restartWindowSeconds": 60, "restartStrategy": "Recreate", "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In",
                  "values": [42]}}, {"action": "Restart", "onCauses": ["UserError"]},
                  {"action": "RestartIgnoringLimit", "onPodConditions": [{"type": "DisruptionTarget"}]},
                  {"action": "ReplacePod", "onCauses": ["Hang"]}, {"action": "ShrinkJob", "onCauses": ["Rendezvous"]}]})");
  json = With(json, "/spec/healthPolicy",
              R"({"firstStepTimeoutSeconds": 5, "stepTimeoutSeconds": 5, "stepTimeoutFactor": 5,
                  "onHang": "ReplacePod", "straggler": {"factor": 2, "windowSteps": 5, "action": "Restart"},
                  "nodeFault": {"conditions": [{"type": "GpuBad"}], "taints": [{"key": "bad"}], "action": "Restart"}})");
  json = With(
      json, "/spec/runPolicy",
      R"({"activeDeadlineSeconds": 5, "startupDeadlineSeconds": 5, "ttlSecondsAfterFinished": 0, "cleanPodPolicy": "None",
                  "forceDeleteAfterSeconds": 5})");
  json = With(json, "/spec/schedulingPolicy",
              R"({"priorityClassName": "high", "topology": {"key": "rack"},
                  "gang": {"provider": "Workload", "minCount": 1, "scheduleTimeoutSeconds": 5}})");
  json = With(json, "/spec/network", R"({"networkPolicy": "None", "hostNetwork": true})");
  json = With(json, "/spec/observability", R"({"metricsPort": 9500})");
  json = With(json, "/spec/nprocPerNode", "2");
  json = With(json, "/spec/standbyReplicas", "1");
  json = With(json, "/spec/successPolicy", "\"Rank0\"");
  json = With(json, "/spec/suspend", "true");
  json = With(json, "/spec/managedBy", "\"kueue.x-k8s.io/multikueue\"");
  EXPECT_THAT(Refused(json), testing::ElementsAre());
  EXPECT_THAT(Refused(With(ValidJob(), "/spec/schedulingPolicy", R"({"queueName": "q"})")),
              testing::ElementsAre());
  EXPECT_THAT(Refused(With(ValidJob(), "/spec/training/data",
                           R"({"format": "imageFolder", "path": "/d", "imageFolder": {"imageSize": 64}})")),
              testing::ElementsAre());
  EXPECT_THAT(
      Refused(With(ValidJob(), "/spec/training/data",
                   R"({"format": "idx", "path": "s3://b/d", "secretRef": {"name": "s"}, "cache": "/c"})")),
      testing::ElementsAre());
  EXPECT_THAT(Validate(Parsed(json)), testing::ElementsAre());
  json = With(With(ValidJob(), "/spec/training/strategy", "\"localsgd\""), "/spec/training/sync",
              R"({"everySteps": 8, "outer": {"learningRate": 0.7, "momentum": 0.9}})");
  EXPECT_THAT(Refused(json), testing::ElementsAre());
  EXPECT_THAT(Validate(Parsed(json)), testing::ElementsAre());
  json = With(With(ValidJob(), "/spec/training/strategy", "\"async\""), "/spec/training/sync",
              R"({"staleness": 1024, "outer": {"learningRate": 0.7, "momentum": 0.9}})");
  EXPECT_THAT(Refused(json), testing::ElementsAre());
  EXPECT_THAT(Validate(Parsed(json)), testing::ElementsAre());
  json = With(With(ValidJob(), "/spec/training/strategy", "\"dataparallel\""), "/spec/worker/replicas", "1");
  EXPECT_THAT(Refused(json), testing::ElementsAre());
  EXPECT_THAT(Validate(Parsed(json)), testing::ElementsAre());
  for (const char* uri : {"/m.pt", "file:///m.pt", "models/m.pt"}) {
    const std::string model =
        R"({"name": "torchscript", "torchscript": {"uri": ")" + std::string(uri) + "\"}}";
    json = With(ValidJob(), "/spec/training/model", model);
    EXPECT_THAT(Refused(json), testing::ElementsAre());
    EXPECT_THAT(Validate(Parsed(json)), testing::ElementsAre());
  }
}

}  // namespace
}  // namespace lockstep::api

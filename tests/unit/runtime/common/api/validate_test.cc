#include "runtime/common/api/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/common/api/violation_case.h"

namespace lockstep::api {
namespace {

class ValidateTest : public testing::TestWithParam<ViolationCase> {};

TEST_P(ValidateTest, NamesTheFieldAndWhatWouldBeRight) { ExpectTheViolation(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Rules, ValidateTest,
    testing::Values(
        ViolationCase{"LongName", "/metadata/name", '"' + std::string(51, 'a') + '"',
                      "metadata.name: must be a label"},
        ViolationCase{"NameBeginsWithADigit", "/metadata/name", "\"1a\"", "metadata.name: must be a label"},
        ViolationCase{"NoContainers", "/spec/worker/template/spec/containers", "[]",
                      "spec.worker.template.spec.containers: must hold the container \"trainer\""},
        ViolationCase{"OtherContainer", "/spec/worker/containerName", "\"main\"",
                      "spec.worker.template.spec.containers: no container is named \"main\""},
        ViolationCase{"NoImage", "/spec/worker/template/spec/containers/0/image", "remove",
                      "spec.worker.template.spec.containers[0].image: is required"},
        ViolationCase{"OwnVariable", "/spec/worker/template/spec/containers/0/env",
                      R"([{"name": "LOCKSTEP_SLOT"}])",
                      "spec.worker.template.spec.containers[0].env: LOCKSTEP_SLOT"},
        ViolationCase{
            "Profile", "/spec/worker/template/spec/containers/0/env",
            R"([{"name": "LOCKSTEP_PROFILE", "value": "soon"}])",
            "spec.worker.template.spec.containers[0].env: LOCKSTEP_PROFILE: must name at most 100 steps"},
        ViolationCase{"RestartPolicy", "/spec/worker/template/spec/restartPolicy", "\"Always\"",
                      "spec.worker.template.spec.restartPolicy: must be absent or Never"},
        ViolationCase{"Hostname", "/spec/worker/template/spec/hostname", "\"h\"",
                      "spec.worker.template.spec.hostname: must be absent"},
        ViolationCase{"MinAboveMax", "/spec/elasticPolicy", R"({"minReplicas": 3, "maxReplicas": 2})",
                      "spec.elasticPolicy.minReplicas: 3 must not exceed maxReplicas, 2"},
        ViolationCase{"ReplicasOutside", "/spec/elasticPolicy", R"({"minReplicas": 3, "maxReplicas": 4})",
                      "spec.worker.replicas: 2 must be within elasticPolicy, 3 to 4"},
        ViolationCase{"HostNetworkPolicy", "/spec/network", R"({"hostNetwork": true})",
                      "spec.network.hostNetwork: needs networkPolicy None: "
                      "no policy reaches pods in the network of their node"},
        ViolationCase{"GangMinCount", "/spec/schedulingPolicy", R"({"gang": {"minCount": 3}})",
                      "spec.schedulingPolicy.gang.minCount: must not exceed worker.replicas"},
        ViolationCase{"UnknownScheme", "/spec/checkpoint", R"({"uri": "http://b/p"})",
                      "spec.checkpoint.uri: must begin with s3://"},
        ViolationCase{"RelativeFile", "/spec/checkpoint", R"({"uri": "file://folder"})",
                      "spec.checkpoint.uri: must begin with"},
        ViolationCase{"NoBucket", "/spec/checkpoint", R"({"uri": "s3:///p"})",
                      "spec.checkpoint.uri: names no bucket"},
        ViolationCase{"AutoBesideAnInterval", "/spec/checkpoint",
                      R"({"uri": "s3://b/p", "interval": "Auto", "intervalSteps": 5})",
                      "spec.checkpoint.interval: Auto chooses when to save"},
        ViolationCase{"PathUpwards", "/spec/checkpoint", R"({"uri": "s3://b/../c"})",
                      "spec.checkpoint.uri: must not contain"},
        ViolationCase{"RuleWithoutMatch", "/spec/failurePolicy", R"({"rules": [{"action": "Restart"}]})",
                      "spec.failurePolicy.rules[0]: must have exactly one of"},
        ViolationCase{
            "ExitCodeZero", "/spec/failurePolicy",
            R"({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]})",
            "spec.failurePolicy.rules[0].onExitCodes.values: 0 is not a failure"},
        ViolationCase{"HeartbeatTimeout", "/spec/rendezvous", R"({"heartbeatIntervalSeconds": 10})",
                      "spec.rendezvous.heartbeatTimeoutSeconds: must exceed"},
        ViolationCase{"EpochsAndSteps", "/spec/training/epochs", "3",
                      "spec.training: must have exactly one of epochs and steps"},
        ViolationCase{"NeitherEpochsNorSteps", "/spec/training/steps", "remove",
                      "spec.training: must have exactly one of epochs and steps"},
        ViolationCase{"MicroBatch", "/spec/training/microBatchSize", "65",
                      "spec.training.microBatchSize: must not exceed globalBatchSize"},
        ViolationCase{"EarlyStopWithoutEvaluation", "/spec/training/earlyStop", R"({"target": 0.9})",
                      "spec.training.earlyStop: needs evaluation"},
        ViolationCase{"ModuleScheme", "/spec/training/model",
                      R"({"name": "torchscript", "torchscript": {"path": "https://host/m.pt"}})",
                      "spec.training.model.torchscript.path: must be a path in the container"},
        ViolationCase{
            "Plugin", "/spec/training/model", R"({"name": "plugin"})",
            "spec.training.model.plugin: is required where name is plugin, with the path of a library and "
            "the name of "
            "a model in it"},
        ViolationCase{
            "Heads", "/spec/training",
            R"({"model": {"name": "gpt", "gpt": {"embeddingSize": 10, "heads": 4}}, "globalBatchSize": 8,
                 "data": {"format": "tokens", "path": "/d"}, "steps": 8})",
            "spec.training.model.gpt.embeddingSize: must be a multiple"},
        ViolationCase{"GptWithoutTokens", "/spec/training/model", R"({"name": "gpt"})",
                      "spec.training.data.format: tokens belongs to the model gpt"},
        ViolationCase{"TokensWithoutGpt", "/spec/training/data", R"({"format": "tokens", "path": "/d"})",
                      "spec.training.data.format: tokens belongs to the model gpt"},
        ViolationCase{"EveryStepsOfDdp", "/spec/training/sync", R"({"everySteps": 8})",
                      "spec.training.sync.everySteps: applies only where strategy is localsgd"},
        ViolationCase{"OuterStepOfDdp", "/spec/training/sync", R"({"outer": {}})",
                      "spec.training.sync.outer: applies only where strategy is localsgd or async"},
        ViolationCase{
            "EveryStepsOfAsync", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "async", "sync": {"everySteps": 2}})",
            "spec.training.sync.everySteps: applies only where strategy is localsgd"},
        ViolationCase{
            "RecordsThatCannotBeToldApart", "/spec/training/data",
            R"({"format": "idx", "path": "/d", "onCorruptRecord": "Skip"})",
            "spec.training.data.onCorruptRecord: Skip applies only where format is csv or imageFolder"},
        ViolationCase{
            "StagesOfAPipeline", "/spec/training",
            R"({"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 8, "steps": 8,
                 "strategy": "pipeline", "pipeline": {"stages": 4}})",
            "spec.training.pipeline.stages: must be left out where strategy is pipeline"},
        ViolationCase{
            "FrozenGroupThatIsTrained", "/spec/training/optimizer",
            R"({"groups": [{"match": ["fc1.*"]}, {"match": ["fc2.*"], "frozen": true, "learningRateScale": 2}]})",
            "spec.training.optimizer.groups[1].frozen: must be false where weightDecay or learningRateScale"},
        ViolationCase{
            "PodsOfOneProcess", "/spec", OneProcess(R"({"worker": {"replicas": 2}})"),
            "spec.worker.replicas: must be 1 where strategy is dataparallel, which is one process on all "
            "devices that it sees; for more ranks use ddp, pipeline or hybrid"},
        ViolationCase{
            "PodsOfOneProcessWithLayersOnDevices", "/spec",
            OneProcess(R"({"worker": {"replicas": 2}})", "modelparallel"),
            "spec.worker.replicas: must be 1 where strategy is modelparallel, which is one process on all "
            "devices that it sees; for more ranks use ddp, pipeline or hybrid"},
        ViolationCase{"MorePodsOfOneProcess", "/spec",
                      OneProcess(R"({"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}})"),
                      "spec.elasticPolicy.maxReplicas: must be 1 where strategy is dataparallel"},
        ViolationCase{"RanksOfOneProcess", "/spec", OneProcess(R"({"nprocPerNode": 2})"),
                      "spec.nprocPerNode: must be auto or 1 where strategy is dataparallel"},
        ViolationCase{"RanksForProcessors", "/spec", OneProcess(R"({"nprocPerNode": "cpu"})"),
                      "spec.nprocPerNode: must be auto or 1 where strategy is dataparallel"},
        ViolationCase{"RanksForClaims", "/spec/worker/template/spec/containers/0/resources",
                      R"({"claims": [{"name": "gpus"}]})",
                      "spec.nprocPerNode: must be a number, not auto, where the container \"trainer\" has "
                      "resources.claims: how "
                      "many devices a claim brings is in the ResourceClaim, not in the pod template"},
        ViolationCase{"NoPath", "/spec/training/data", R"({"format": "idx"})",
                      "spec.training.data.path: is required"},
        ViolationCase{"PathOfSynthetic", "/spec/training/data", R"({"format": "synthetic", "path": "/d"})",
                      "spec.training.data.path: must be absent where format is synthetic"},
        ViolationCase{"PathOfPlugin", "/spec/training/data",
                      R"({"format": "plugin", "path": "/d", "plugin": {"path": "/p.so", "name": "p"}})",
                      "spec.training.data.path: must be absent where format is plugin"},
        ViolationCase{
            "DataOfPlugin", "/spec/training/data", R"({"format": "plugin"})",
            "spec.training.data.plugin: is required where format is plugin, with the path of a library and "
            "the name "
            "of a data set in it"},
        ViolationCase{
            "SchemeOfData", "/spec/training/data", R"({"format": "idx", "path": "http://host/d"})",
            "spec.training.data.path: must be a folder or begin with s3://, gs:// or abfs://, not http://"},
        ViolationCase{"BucketOfData", "/spec/training/data", R"({"format": "idx", "path": "s3:///d"})",
                      "spec.training.data.path: must name a bucket and a folder"},
        ViolationCase{"WayOutOfData", "/spec/training/data", R"({"format": "idx", "path": "s3://b/../d"})",
                      "spec.training.data.path: must not contain"},
        ViolationCase{"SecretOfAFolder", "/spec/training/data",
                      R"({"format": "idx", "path": "/d", "secretRef": {"name": "s"}})",
                      "spec.training.data.secretRef: applies only where path is a URI"},
        ViolationCase{"CacheOfAFolder", "/spec/training/data",
                      R"({"format": "idx", "path": "/d", "cache": "/c"})",
                      "spec.training.data.cache: applies only where path is a URI"},
        ViolationCase{"RelativeCache", "/spec/training/data",
                      R"({"format": "idx", "path": "s3://b/d", "cache": "c"})",
                      "spec.training.data.cache: must be an absolute path"},
        ViolationCase{"Nesterov", "/spec/training/optimizer", R"({"name": "sgd", "nesterov": true})",
                      "spec.training.optimizer.nesterov: needs momentum"},
        ViolationCase{"MomentumOfAdamw", "/spec/training/optimizer", R"({"momentum": 0.9})",
                      "spec.training.optimizer.momentum: applies only where name is sgd or muon"},
        ViolationCase{"MuonWithoutMomentum", "/spec/training/optimizer", R"({"name": "muon"})",
                      "spec.training.optimizer.momentum: must be above 0 where name is muon"},
        ViolationCase{"UseMuonOfLamb", "/spec/training/optimizer",
                      R"({"name": "lamb", "groups": [{"match": ["fc1.*"], "useMuon": false}]})",
                      "spec.training.optimizer.groups[0].useMuon: applies only where name is muon"},
        ViolationCase{"StepWithoutInterval", "/spec/training/schedule", R"({"name": "step"})",
                      "spec.training.schedule.decayEverySteps: is required"},
        ViolationCase{"WarmupTooLong", "/spec/training/schedule", R"({"warmupSteps": 10})",
                      "spec.training.schedule.warmupSteps: must be below steps"},
        ViolationCase{"MinLearningRate", "/spec/training/schedule",
                      R"({"name": "cosine", "minLearningRate": 1})",
                      "spec.training.schedule.minLearningRate: must not exceed"}),
    [](const testing::TestParamInfo<ViolationCase>& test_case) { return test_case.param.name; });

TEST(Validate, AJobThatQueuesHasNoAutoscaler) {
  const Json json = With(
      With(ValidJob(), "/spec/elasticPolicy", R"({"minReplicas": 1, "maxReplicas": 4, "metrics": [{}]})"),
      "/spec/schedulingPolicy", R"({"queueName": "q"})");
  EXPECT_THAT(Validate(Parsed(json)),
              testing::ElementsAre(testing::StartsWith(
                  "spec.elasticPolicy.metrics: must be absent with schedulingPolicy.queueName")));
}

// A queued job with these annotations on the template of its two pods.
std::vector<std::string> ViolationsOfTopology(const std::string& annotations) {
  const Json json = With(With(ValidJob(), "/spec/schedulingPolicy", R"({"queueName": "q"})"),
                         "/spec/worker/template/metadata", R"({"annotations": )" + annotations + "}");
  return Validate(Parsed(json));
}

TEST(Validate, RefusesAnnotationsOfATopologyThatKueueWouldRefuse) {
  const struct {
    const char* annotations;
    const char* violation;  // after the name of the last annotation; empty: valid
  } cases[] = {
      {R"({"kueue.x-k8s.io/podset-required-topology": "rack"})", ""},
      {R"({"kueue.x-k8s.io/podset-unconstrained-topology": "true"})", ""},
      {R"({"kueue.x-k8s.io/podset-preferred-topology": "rack", "kueue.x-k8s.io/podset-required-topology": "rack"})",
       "podset-preferred-topology]: must be absent with kueue.x-k8s.io/podset-required-topology"},
      {R"({"kueue.x-k8s.io/podset-unconstrained-topology": "yes"})",
       R"(podset-unconstrained-topology]: must be "true" or "false", not "yes")"},
      {R"({"kueue.x-k8s.io/podset-required-topology": ""})",
       "podset-required-topology]: must be the label of nodes that names a level of the topology"},
      {R"({"kueue.x-k8s.io/podset-slice-size": "2", "kueue.x-k8s.io/podset-slice-required-topology": "rack"})",
       ""},
      {R"({"kueue.x-k8s.io/podset-slice-size": "2"})",
       "podset-slice-size]: belongs with kueue.x-k8s.io/podset-slice-required-topology"},
      {R"({"kueue.x-k8s.io/podset-slice-size": "3", "kueue.x-k8s.io/podset-slice-required-topology": "rack"})",
       "podset-slice-size]: must be a number from 1 to 2, the pods of the job"},
      {R"({"kueue.x-k8s.io/podset-slice-size": "2x", "kueue.x-k8s.io/podset-slice-required-topology": "rack"})",
       "podset-slice-size]: must be a number from 1 to 2, the pods of the job"},
  };
  for (const auto& test : cases) {
    std::vector<std::string> expected;
    if (*test.violation != '\0')
      expected.push_back(std::string("spec.worker.template.metadata.annotations[kueue.x-k8s.io/") +
                         test.violation);
    EXPECT_EQ(ViolationsOfTopology(test.annotations), expected) << test.annotations;
  }
}

TEST(Validate, AcceptsAValidJob) { EXPECT_EQ(Validate(Parsed(ValidJob())), std::vector<std::string>{}); }

TEST(Validate, AcceptsWhatFitsTogether) {
  Json json =
      With(ValidJob(), "/spec/training",
           R"({"model": {"name": "cnn", "cnn": {"channels": [8]}}, "data": {"format": "idx", "path": "/d",
                       "sampler": "Weighted", "classWeights": [1, 3], "augmentation": {"horizontalFlip": true, "cropPadding": 4}, "dropLast": true, "workers": 8, "prefetch": 8}, "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": true,
                       "weightDecay": 0.01, "clipNorm": 1}, "schedule": {"name": "step", "warmupSteps": 5,
                       "decayEverySteps": 5}, "globalBatchSize": 8, "microBatchSize": 4, "epochs": 2, "seed": 3,
                       "precision": "fp16", "determinism": "World", "balance": "Speed", "strategy": "zero1", "zero1": {"copies": 2}, "evaluation": {"batchSize": 9},
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
                  "nodeFault": {"conditions": [{"type": "GpuBad"}], "taints": [{"key": "bad"}], "action": "Restart"},
                  "instanceMetadata": "Azure"})");
  json = With(
      json, "/spec/runPolicy",
      R"({"activeDeadlineSeconds": 5, "startupDeadlineSeconds": 5, "ttlSecondsAfterFinished": 0, "cleanPodPolicy": "None",
                  "forceDeleteAfterSeconds": 5})");
  json = With(json, "/spec/schedulingPolicy",
              R"({"priorityClassName": "high", "topology": {"key": "rack"},
                  "gang": {"provider": "Workload", "minCount": 1, "scheduleTimeoutSeconds": 5}})");
  json = With(json, "/spec/network", R"({"networkPolicy": "None", "hostNetwork": true})");
  json = With(json, "/spec/observability",
              R"({"metricsPort": 9500, "rankMetricsLimit": 8, "instrumentation": "None"})");
  json = With(json, "/spec/nprocPerNode", "2");
  json = With(json, "/spec/standbyReplicas", "1");
  json = With(json, "/spec/successPolicy", R"({"type": "Rank0"})");
  json = With(json, "/spec/suspend", "true");
  json = With(json, "/spec/managedBy", "\"kueue.x-k8s.io/multikueue\"");
  EXPECT_THAT(Validate(Parsed(json)), testing::IsEmpty());
  json = With(With(ValidJob(), "/spec/training/strategy", "\"localsgd\""), "/spec/training/sync",
              R"({"everySteps": 8, "outer": {"learningRate": 0.7, "momentum": 0.9}})");
  EXPECT_THAT(Validate(Parsed(json)), testing::IsEmpty());
  json = With(With(ValidJob(), "/spec/training/strategy", "\"async\""), "/spec/training/sync",
              R"({"staleness": 1024, "outer": {"learningRate": 0.7, "momentum": 0.9}})");
  EXPECT_THAT(Validate(Parsed(json)), testing::IsEmpty());
  for (const char* strategy : {"\"dataparallel\"", "\"modelparallel\""}) {
    json = With(With(ValidJob(), "/spec/training/strategy", strategy), "/spec/worker/replicas", "1");
    EXPECT_THAT(Validate(Parsed(json)), testing::IsEmpty());
  }
  json = With(ValidJob(), "/spec/training/model",
              R"({"name": "torchscript", "torchscript": {"path": "models/m.pt"}})");
  EXPECT_THAT(Validate(Parsed(json)), testing::IsEmpty());
}

TEST(Validate, ReportsAllViolationsAtOnce) {
  Json json = With(ValidJob(), "/metadata/name", "\"A\"");
  json = With(json, "/spec/training/epochs", "3");
  json = With(json, "/spec/checkpoint", R"({"uri": "x"})");
  EXPECT_EQ(Validate(Parsed(json)).size(), 3u);
}

// A job that runs a program of the user's own.
Json ProgramJob() {
  return With(With(ValidJob(), "/spec/training", "remove"), "/spec/worker/template/spec/containers/0/command",
              R"(["python3", "train.py"])");
}

TEST(ValidateProgram, NeedsACommandAndNothingElse) {
  EXPECT_EQ(Validate(Parsed(ProgramJob())), std::vector<std::string>{});
  for (const char* command : {"remove", "[]"}) {
    const Json job = With(ProgramJob(), "/spec/worker/template/spec/containers/0/command", command);
    EXPECT_THAT(
        Validate(Parsed(job)),
        testing::ElementsAre(testing::StartsWith(
            "spec.worker.template.spec.containers[trainer].command: is required without spec.training")));
  }
}

TEST(Validate, LooksForNoStragglersAmongStages) {
  const Json job =
      With(With(ValidJob(), "/spec/training/strategy", "\"pipeline\""), "/spec/healthPolicy/straggler", "{}");
  EXPECT_THAT(Validate(Parsed(job)), testing::ElementsAre(testing::StartsWith(
                                         "spec.healthPolicy.straggler: must be left out where strategy is")));
}

TEST(ValidateProgram, RefusesWhatOnlyATrainingHas) {
  EXPECT_THAT(Validate(Parsed(With(ProgramJob(), "/spec/checkpoint", R"({"uri": "s3://b"})"))),
              testing::ElementsAre(testing::StartsWith("spec.checkpoint: needs spec.training")));
}

TEST(ValidateProgram, NamesTheFolderOfItsCheckpoints) {
  const auto with_folder = [](const Json& job, const char* folder) {
    return Validate(Parsed(With(job, "/spec/observability", Json{{"checkpointFolder", folder}}.dump())));
  };
  EXPECT_THAT(with_folder(ProgramJob(), "/checkpoints"), testing::IsEmpty());
  EXPECT_THAT(
      with_folder(ProgramJob(), "checkpoints"),
      testing::ElementsAre(testing::StartsWith("spec.observability.checkpointFolder: must be a path")));
  EXPECT_THAT(
      with_folder(ValidJob(), "/checkpoints"),
      testing::ElementsAre(testing::StartsWith("spec.observability.checkpointFolder: must be absent")));
}

TEST(ValidateProgram, JudgesStepsThatTheWitnessSees) {
  for (const auto& [field, value] : {std::pair{"stepTimeoutSeconds", "9"}, std::pair{"straggler", "{}"}}) {
    const std::string name = std::string("healthPolicy/") + field;
    const Json job = With(ProgramJob(), "/spec/" + name, value);
    EXPECT_THAT(Validate(Parsed(job)), testing::IsEmpty()) << name;
    EXPECT_THAT(Validate(Parsed(With(job, "/spec/observability", R"({"instrumentation": "None"})"))),
                testing::ElementsAre(testing::StartsWith(std::string("spec.healthPolicy.") + field +
                                                         ": needs spec.observability.instrumentation Auto")));
  }
}

}  // namespace
}  // namespace lockstep::api

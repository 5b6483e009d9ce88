#include "runtime/common/api/training_job_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/common/api/validate.h"
#include "tests/unit/runtime/common/api/job_text.h"

namespace lockstep::api {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

std::vector<std::string> ViolationsOf(const Json& job) {
  std::vector<std::string> violations;
  (void)TrainingJobFromJson(job, violations);
  return violations;
}

TEST(TrainingJobFromJson, FillsInTheDefaults) {
  const TrainingJob job = Parsed(ValidJob());
  EXPECT_EQ(job.metadata.name, "job");
  EXPECT_EQ(job.metadata.namespace_name, "team");
  EXPECT_EQ(job.spec.worker.replicas, 2);
  EXPECT_EQ(job.spec.worker.container_name, "trainer");
  EXPECT_EQ(job.spec.nproc_per_node, NprocPerNode{});
  EXPECT_EQ(job.spec.rendezvous.join_timeout_seconds, 600);
  EXPECT_EQ(job.spec.failure_policy.max_restarts, 3);
  EXPECT_FALSE(job.spec.elastic_policy.has_value());
  EXPECT_EQ(job.spec.min_replicas(), 2);
  EXPECT_EQ(job.spec.max_replicas(), 2);
  ASSERT_TRUE(job.spec.training.has_value());
  EXPECT_EQ(job.spec.training->model.mlp.hidden_sizes, std::vector<int64_t>{128});
  EXPECT_EQ(job.spec.training->optimizer.name, OptimizerName::kAdamw);
  EXPECT_EQ(job.spec.training->steps, 10);
  EXPECT_FALSE(job.spec.training->epochs.has_value());
}

TEST(TrainingJobFromJson, ReadsIntegersAndWordsInOneField) {
  const auto nproc = [](const char* text) {
    return Parsed(With(ValidJob(), "/spec/nprocPerNode", text)).spec.nproc_per_node;
  };
  EXPECT_EQ(nproc("4"), (NprocPerNode{NprocMode::kCount, 4}));
  const Json job = With(ValidJob(), "/spec/checkpoint", R"({"uri": "s3://b", "resume": 400})");
  EXPECT_EQ(Parsed(job).spec.checkpoint->resume, (ResumeFrom{ResumeMode::kStep, 400}));
}

TEST(TrainingJobFromJson, CollectsEveryViolation) {
  Json job = ValidJob();
  job["kind"] = "Job";
  job = With(job, "/spec/worker/replicas", "-1");
  job = With(job, "/spec/training/model/name", "\"alexnet\"");
  job = With(job, "/spec/training/model/depth", "3");
  job = With(job, "/spec/training/globalBatchSize", "remove");
  job = With(job, "/spec/training/optimizer", R"({"learningRate": 0})");
  job = With(job, "/spec/nprocPerNode", "0");
  job =
      With(job, "/spec/failurePolicy", R"({"rules": [{"action": "Restart", "onCauses": ["Hang", "Rain"]}]})");
  job = With(job, "/spec/replicas", "2");
  EXPECT_THAT(
      ViolationsOf(job),
      UnorderedElementsAre(
          "kind: must be DistributedTrainingJob", "spec.worker.replicas: must be at least 1, not -1",
          "spec.training.model.name: must be mlp, cnn, resnet18, resnet50, gpt, torchscript or plugin, not "
          "\"alexnet\"",
          "spec.training.model.depth: unknown field", "spec.training.globalBatchSize: is required",
          "spec.training.optimizer.learningRate: must be above 0, not 0",
          "spec.nprocPerNode: must be auto, cpu or a number from 1 to 64, not 0",
          "spec.failurePolicy.rules[0].onCauses[1]: must be UserError, Infrastructure, Preemption, Hang, "
          "Straggler or Rendezvous, not \"Rain\"",
          "spec.replicas: unknown field"));
}

TEST(TrainingJobFromJson, SuggestsTheFieldThatWasMeant) {
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/training/globalBatchsize", "64")),
              ElementsAre("spec.training.globalBatchsize: unknown field: did you mean \"globalBatchSize\"?"));
}

TEST(TrainingJobFromJson, SaysOnlyOnceThatATypeIsWrong) {
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/training/steps", "\"yes\"")),
              ElementsAre("spec.training.steps: must be an integer, not \"yes\""));
  EXPECT_THAT(ViolationsOf(
                  With(ValidJob(), "/spec/training/model", R"({"name": "cnn", "cnn": {"channels": ["a"]}})")),
              ElementsAre("spec.training.model.cnn.channels: must be a list of integers"));
}

TEST(TrainingJobFromJson, NamesTheRightWordAndShapeForAnother) {
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/training/determinism", "\"world\"")),
              ElementsAre("spec.training.determinism: must be None or World, not \"world\""));
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/training/sync", R"({"compression": "powersgd"})")),
              ElementsAre("spec.training.sync.compression: must be fp16 or bf16, not \"powersgd\""));
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/nprocPerNode", "\"gpu\"")),
              ElementsAre("spec.nprocPerNode: must be auto, cpu or a number from 1 to 64, not \"gpu\""));
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/successPolicy", "\"Rank0\"")),
              ElementsAre("spec.successPolicy: must be an object, not \"Rank0\""));
}

TEST(TrainingJobFromJson, ChecksEntriesAndLengthsOfLists) {
  const auto hidden = [](const char* text) {
    return ViolationsOf(
        With(ValidJob(), "/spec/training/model/mlp", "{\"hiddenSizes\": " + std::string(text) + "}"));
  };
  EXPECT_THAT(hidden("[]"), ElementsAre());
  EXPECT_THAT(hidden("[64, 0]"),
              ElementsAre("spec.training.model.mlp.hiddenSizes[1]: must be at least 1, not 0"));
  EXPECT_THAT(hidden("64"),
              ElementsAre("spec.training.model.mlp.hiddenSizes: must be a list of integers, not 64"));
  Json many = Json::array();
  for (int i = 0; i < 33; ++i) many.push_back(1);
  EXPECT_THAT(hidden(many.dump().c_str()),
              ElementsAre("spec.training.model.mlp.hiddenSizes: must have at most 32 entries"));
}

TEST(TrainingJobFromJson, RefusesASectionOfAnotherModel) {
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/training/model/cnn", R"({"hiddenSize": 64})")),
              ElementsAre("spec.training.model.cnn: applies only where name is cnn"));
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/training/data",
                                R"({"format": "idx", "path": "/d", "synthetic": {"samples": 9}})")),
              ElementsAre("spec.training.data.synthetic: applies only where format is synthetic"));
  EXPECT_THAT(ViolationsOf(With(ValidJob(), "/spec/training/data",
                                R"({"format": "synthetic", "plugin": {"path": "/p.so", "name": "p"}})")),
              ElementsAre("spec.training.data.plugin: applies only where format is plugin"));
}

TEST(TrainingJobFromJson, RefusesTheSectionOfAnotherStrategy) {
  const Json job = With(ValidJob(), "/spec/training/zero1", R"({"copies": 2})");
  EXPECT_THAT(ViolationsOf(job), ElementsAre("spec.training.zero1: applies only where strategy is zero1"));
  EXPECT_THAT(ViolationsOf(With(job, "/spec/training/strategy", "\"zero1\"")), ElementsAre());
  const Json sharded = With(ValidJob(), "/spec/training/fsdp", R"({"copies": 2})");
  EXPECT_THAT(ViolationsOf(sharded), ElementsAre("spec.training.fsdp: applies only where strategy is fsdp"));
  EXPECT_THAT(ViolationsOf(With(sharded, "/spec/training/strategy", "\"fsdp\"")), ElementsAre());
  const Json staged = With(ValidJob(), "/spec/training/pipeline", R"({"stages": 4})");
  EXPECT_THAT(ViolationsOf(staged),
              ElementsAre("spec.training.pipeline: applies only where strategy is pipeline or hybrid"));
  EXPECT_THAT(ViolationsOf(With(staged, "/spec/training/strategy", "\"hybrid\"")), ElementsAre());
}

TEST(TrainingJobFromJson, KeepsMetadataAndStatusOfABrokenSpec) {
  Json job = With(ValidJob(), "/spec", "7");
  job["metadata"]["uid"] = "u-1";
  job["status"] = *ParseJson(R"({"attempt": 2, "fromTheFuture": true})");
  std::vector<std::string> violations;
  const TrainingJob parsed = TrainingJobFromJson(job, violations);
  EXPECT_THAT(violations, testing::Contains("spec: must be an object"));
  EXPECT_EQ(parsed.metadata.uid, "u-1");
  EXPECT_EQ(parsed.status.attempt, 2);
}

TEST(TrainingJobFromJson, AnythingAtAllIsOnlyAViolation) {
  for (const char* text :
       {"null", "[]", "3", "\"x\"", "{}", R"({"spec": null})", R"({"metadata": 3, "spec": []})"}) {
    EXPECT_FALSE(ViolationsOf(*ParseJson(text)).empty()) << text;
  }
}

// Any value of a job may be replaced by any other: the result is either violations or a job.
TEST(TrainingJobFromJson, SurvivesEveryValueEverywhere) {
  Json job = ValidJob();
  for (const char* section :
       {"elasticPolicy", "checkpoint", "rendezvous", "failurePolicy", "healthPolicy", "network"}) {
    job["spec"][section] = Json::object();
  }
  job = With(job, "/spec/training/model", R"({"name": "gpt", "gpt": {"heads": 4, "embeddingSize": 8}})");
  job = With(job, "/spec/failurePolicy/rules", R"([{"action": "Restart", "onCauses": ["Hang"]}])");
  job = With(job, "/spec/worker/template/spec/containers/0/env", R"([{"name": "A"}])");
  const Json odd = *ParseJson(
      R"([null, true, 0, -1, 9223372036854775807, 18446744073709551615, 1e308, "", "\u0000x", [], [[]], [null], {}, {"": {}}])");
  const Json leaves = job.flatten();
  for (const auto& [pointer, value] : leaves.items()) {
    Json::json_pointer at(pointer);
    for (; !at.empty(); at = at.parent_pointer()) {
      for (const Json& replacement : odd) {
        Json broken = job;
        broken[at] = replacement;
        std::vector<std::string> violations;
        (void)Validate(TrainingJobFromJson(broken, violations));
      }
    }
  }
}

TEST(TrainingSpec, SurvivesTheWayToARankAndBack) {
  Json job = With(ValidJob(), "/spec/training/model",
                  R"({"name": "cnn", "cnn": {"channels": [8], "dropout": 0.1}})");
  job = With(job, "/spec/training/evaluation", "{}");
  job = With(job, "/spec/training/seed", "9007199254740991");
  const TrainingSpec spec = *Parsed(job).spec.training;
  const Json written = TrainingSpecToJson(spec);
  std::vector<std::string> violations;
  const TrainingSpec again = TrainingSpecFromJson(*ParseJson(DumpJson(written)), "training", violations);
  EXPECT_EQ(violations, std::vector<std::string>{});
  EXPECT_EQ(TrainingSpecToJson(again), written);
  EXPECT_EQ(again.model.cnn.channels, std::vector<int64_t>{8});
  EXPECT_EQ(again.seed, 9007199254740991);
  EXPECT_EQ(again.evaluation->batch_size, 256);
  EXPECT_EQ(written.at("optimizer").at("learningRate"), 0.001);
}

TEST(CheckpointSpec, SurvivesTheWayToARankAndBack) {
  const Json written = CheckpointSpecToJson(CheckpointSpec{.uri = "s3://b/p",
                                                           .secret_ref = SecretReference{"s"},
                                                           .interval_steps = 5,
                                                           .interval_seconds = std::nullopt,
                                                           .resume = {ResumeMode::kNever, 0}});
  std::vector<std::string> violations;
  const CheckpointSpec again = CheckpointSpecFromJson(written, "checkpoint", violations);
  EXPECT_EQ(violations, std::vector<std::string>{});
  EXPECT_EQ(CheckpointSpecToJson(again), written);
  EXPECT_EQ(written.at("resume"), "Never");
  EXPECT_FALSE(written.contains("intervalSeconds"));
}

TEST(TrainingJobStatus, IsRoundedAndHasNoNumberThatJsonLacks) {
  TrainingJobStatus status;
  status.progress = ProgressStatus{.step = 7,
                                   .total_steps = 10,
                                   .epoch = 1,
                                   .loss = 0.123456789,
                                   .samples_per_second = std::numeric_limits<double>::quiet_NaN(),
                                   .last_progress_time = WallTime(std::chrono::seconds(86400)),
                                   .evaluation = std::nullopt};
  status.damaged_checkpoints = {{WallTime(std::chrono::seconds(86400)), 7, "is missing"}};
  status.scaling = {{2, 640, 0.25, 0.125, 90, WallTime(std::chrono::seconds(86400))}};
  const Json json = TrainingJobStatusToJson(status);
  EXPECT_EQ(json.at("progress").at("loss"), 0.123457);
  EXPECT_FALSE(json.at("progress").contains("samplesPerSecond"));
  EXPECT_EQ(json.at("progress").at("lastProgressTime"), "1970-01-02T00:00:00Z");
  EXPECT_EQ(json.at("replicas"), 0);
  std::vector<std::string> violations;
  const TrainingJobStatus again = TrainingJobStatusFromJson(json, violations);
  EXPECT_EQ(violations, std::vector<std::string>{});
  EXPECT_EQ(TrainingJobStatusToJson(again), json);
  EXPECT_EQ(again.damaged_checkpoints, status.damaged_checkpoints);
  EXPECT_EQ(again.scaling, status.scaling);
}

}  // namespace
}  // namespace lockstep::api

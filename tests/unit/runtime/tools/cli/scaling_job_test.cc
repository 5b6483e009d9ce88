#include "runtime/tools/cli/scaling_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tools/cli/manifest_file.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

api::TrainingJob JobOf(const char* spec) {
  Json object = Json::parse(R"({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
      "metadata": {"name": "small"}, "spec": {
        "worker": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "trainer", "image": "none", "command": ["train"]}]}}}}})");
  object["spec"].update(Json::parse(spec));
  const LoadedManifest loaded = CheckManifest(object);
  EXPECT_EQ(loaded.problems, std::vector<std::string>());
  return loaded.job;
}

TEST(ReplicasFrom, SortsTheSizes) {
  EXPECT_THAT(*ReplicasFrom("4,1,2"), ElementsAre(1, 2, 4));
  EXPECT_THAT(*ReplicasFrom("8"), ElementsAre(8));
}

TEST(ReplicasFrom, RejectsWhatIsNoListOfSizes) {
  for (const char* text :
       {"", "1,", ",1", "1;2", "1,x", "2.5", "0,1", "-1", "10001", "99999999999", "2,1,2"}) {
    const auto replicas = ReplicasFrom(text);
    ASSERT_FALSE(replicas.ok()) << text;
    EXPECT_THAT(replicas.error().message, HasSubstr("such as 1,2,4, not \"" + std::string(text) + "\""));
  }
}

constexpr const char* kTraining = R"({
    "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}, "standbyReplicas": 1,
    "checkpoint": {"uri": "s3://bucket/small", "secretRef": {"name": "keys"}},
    "training": {"model": {"name": "mlp"}, "globalBatchSize": 64, "epochs": 2,
      "data": {"format": "npy", "path": "s3://bucket/data", "secretRef": {"name": "keys"}},
      "evaluation": {"everyEpochs": 1}, "earlyStop": {"target": 0.9}}})";

TEST(ProblemsOfSizes, NamesTheSizesThatTheJobCannotHave) {
  const api::TrainingJob job = JobOf(kTraining);
  EXPECT_THAT(ProblemsOfSizes(job, {2, 4}), IsEmpty());
  EXPECT_THAT(ProblemsOfSizes(job, {1, 2, 8}),
              ElementsAre("--replicas 1: spec.worker.replicas: 1 must be within elasticPolicy, 2 to 4",
                          "--replicas 8: spec.worker.replicas: 8 must be within elasticPolicy, 2 to 4"));
}

TEST(ProblemsOfSizes, SaysWhereAProgramIsMeasured) {
  EXPECT_THAT(ProblemsOfSizes(JobOf("{}"), {1}),
              ElementsAre(HasSubstr("In a cluster `kubectl lockstep scaling small` shows its speed")));
}

TEST(JobOfSize, TrainsUntilItIsStoppedAndStoresNothing) {
  const api::TrainingJobSpec spec = JobOfSize(JobOf(kTraining), 3, "/tmp/folder").spec;
  EXPECT_EQ(spec.pod_count(), 3);
  EXPECT_EQ(spec.min_replicas(), 3) << "fewer would be another size";
  EXPECT_FALSE(spec.checkpoint);
  EXPECT_FALSE(spec.training->epochs);
  EXPECT_FALSE(spec.training->evaluation);
  EXPECT_FALSE(spec.training->early_stop);
  EXPECT_EQ(spec.training->data.cache, "/tmp/folder/data");
  EXPECT_FALSE(spec.training->data.secret_ref);
  EXPECT_THAT(ProblemsOfSizes({.metadata = {.name = "small"}, .spec = spec, .status = {}}, {3}), IsEmpty())
      << "the ranks validate it again";
}

TEST(JobOfSize, ReadsTheCopiesOfTheDataThatTheJobHas) {
  api::TrainingJob job = JobOf(kTraining);
  job.spec.training->data.cache = "/data";
  EXPECT_EQ(JobOfSize(job, 2, "/tmp/folder").spec.training->data.cache, "/data");
}

}  // namespace
}  // namespace lockstep::cli

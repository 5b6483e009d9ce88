#include "operator/reconcile/checkpoint_removal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "operator/reconcile/removal_pod.h"
#include "runtime/common/api/conditions.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"
#include "tests/support/world_model.h"

namespace lockstep::reconcile {
namespace {

using namespace std::chrono_literals;
using testing::ActionsOf;
using testing::ConditionOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::EventsOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobWorld;
using ::testing::Not;
using testing::WorldModel;
namespace condition = api::condition;

// A job that has trained and is being deleted.
class DeletedJob {
 public:
  DeletedJob() {
    api::TrainingJob& job = observed().job;
    job.spec.checkpoint = api::CheckpointSpec{.uri = "s3://bucket/a", .delete_with_job = true};
    job.status.rendezvous = api::RendezvousStatus{.round = 3};
    job.metadata.deletion_timestamp = observed().now;
  }

  Pod& Removal(PodPhase phase) {
    observed().removal = Pod{.name = "job-removal-job-uid", .uid = "removal-uid", .phase = phase};
    observed().removal->created = observed().now;
    if (phase == PodPhase::kFailed) {
      observed().removal->exit_code = 4;
      observed().removal->message = "the store is away";
    }
    return *observed().removal;
  }
  // One pass whose status is written.
  Plan Pass() {
    Plan plan = MakePlan(observed());
    observed().job.status = plan.status;
    return plan;
  }
  // The pass that creates the pod.
  void Begin() { ASSERT_THAT(ActionsOf(Pass()), ElementsAre("start removal")); }

  Observed& observed() { return world.observed(); }
  JobWorld world;
};

TEST(CheckpointRemoval, TouchesNothingThatTheJobDoesNotSay) {
  DeletedJob without;
  without.observed().job.spec.checkpoint.reset();
  DeletedJob by_default;
  by_default.observed().job.spec.checkpoint = api::CheckpointSpec{.uri = "s3://bucket/a"};
  DeletedJob never_in_a_round;
  never_in_a_round.observed().job.status.rendezvous.reset();
  for (DeletedJob* job : {&without, &by_default, &never_in_a_round}) {
    const Plan plan = job->Pass();
    EXPECT_THAT(ActionsOf(plan), ElementsAre("remove finalizer"));
    EXPECT_THAT(EventsOf(plan), IsEmpty());
  }
}

TEST(CheckpointRemoval, BeginsOnceTheWorkersAreGone) {
  DeletedJob job;
  job.world.Running(0);
  EXPECT_THAT(ActionsOf(job.Pass()), ElementsAre("delete job-worker-0"));
  job.observed().pods.front().deleting = true;
  EXPECT_THAT(ActionsOf(job.Pass()), IsEmpty());
  job.observed().pods.clear();
  const Plan plan = job.Pass();
  EXPECT_THAT(ActionsOf(plan), ElementsAre("start removal"));
  EXPECT_EQ(ConditionOf(plan, condition::kCheckpointsRemoved).status, api::ConditionStatus::kFalse);
  EXPECT_THAT(ConditionOf(plan, condition::kCheckpointsRemoved).message, HasSubstr("s3://bucket/a"));
  EXPECT_EQ(plan.requeue_after, kRemovalPatience);
}

TEST(CheckpointRemoval, IsNotBegunOfAJobThatIsNotDeleted) {
  DeletedJob job;
  job.observed().job.metadata.deletion_timestamp.reset();
  EXPECT_THAT(ActionsOf(job.Pass()), Not(Contains("start removal")));
  job.observed().job.spec.suspend = true;
  EXPECT_THAT(ActionsOf(job.Pass()), Not(Contains("start removal")));
}

TEST(CheckpointRemoval, LetsTheJobGoWhenItIsDone) {
  DeletedJob job;
  job.Begin();
  job.Removal(PodPhase::kRunning);
  EXPECT_THAT(ActionsOf(job.Pass()), IsEmpty());
  job.Removal(PodPhase::kSucceeded);
  const api::TrainingJobStatus before = job.observed().job.status;
  const Plan plan = job.Pass();
  EXPECT_THAT(ActionsOf(plan), ElementsAre("end removal", "remove finalizer"));
  EXPECT_THAT(EventsOf(plan), ElementsAre("CheckpointsRemoved"));
  EXPECT_EQ(plan.status, before) << "there is nothing left to write it to";
}

// After a restart of the operator the pod has all of the state.
TEST(CheckpointRemoval, IsDoneForAnOperatorThatNeverSawItBegin) {
  DeletedJob job;
  job.Removal(PodPhase::kRunning);
  EXPECT_THAT(ActionsOf(job.Pass()), IsEmpty());
  job.Removal(PodPhase::kSucceeded).deleting = true;
  EXPECT_THAT(ActionsOf(job.Pass()), ElementsAre("end removal", "remove finalizer"));
}

TEST(CheckpointRemoval, IsTriedAgainAfterPausesThatDouble) {
  DeletedJob job;
  const WallTime begin = job.observed().now;
  job.Begin();
  std::vector<int64_t> tried;
  while (tried.size() < 4) {
    job.Removal(PodPhase::kFailed);  // at once
    tried.push_back(std::chrono::duration_cast<std::chrono::seconds>(job.observed().now - begin).count());
    const Plan failed = job.Pass();
    EXPECT_THAT(ActionsOf(failed), IsEmpty());
    EXPECT_THAT(ConditionOf(failed, condition::kCheckpointsRemoved).message, HasSubstr("the store is away"));
    const std::vector<std::string> reported = {"CheckpointRemovalFailed"};
    EXPECT_EQ(EventsOf(failed), tried.size() == 1 ? reported : std::vector<std::string>()) << "reported once";
    ASSERT_TRUE(failed.requeue_after.has_value());
    job.observed().now += *failed.requeue_after;
    EXPECT_THAT(ActionsOf(job.Pass()), ElementsAre("end removal"));
    job.observed().removal.reset();
    EXPECT_THAT(ActionsOf(job.Pass()), ElementsAre("start removal"));
  }
  EXPECT_THAT(tried, ElementsAre(0, 10, 20, 40));
}

TEST(CheckpointRemoval, IsGivenUpInTheEndWithWhatIsLeftToDo) {
  DeletedJob job;
  job.Begin();
  job.observed().now += kRemovalPatience - 1s;
  job.Removal(PodPhase::kRunning);
  EXPECT_THAT(ActionsOf(job.Pass()), IsEmpty());
  job.Removal(PodPhase::kFailed);
  job.observed().now += 1s;
  const api::TrainingJobStatus before = job.observed().job.status;
  const Plan plan = job.Pass();
  EXPECT_THAT(ActionsOf(plan), ElementsAre("end removal", "remove finalizer"));
  ASSERT_THAT(EventsOf(plan), ElementsAre("CheckpointsLeft"));
  EXPECT_TRUE(plan.events.front().warning);
  EXPECT_THAT(plan.events.front().note,
              AllOf(HasSubstr("lockstep checkpoint rm s3://bucket/a --all-of-job job-uid"),
                    HasSubstr("the store is away")));
  EXPECT_EQ(plan.status, before);
}

TEST(CheckpointRemoval, SaysWhyItsPodDoesNotStartAndDoesNotWaitForItForEver) {
  DeletedJob job;
  job.Begin();
  Pod& pod = job.Removal(PodPhase::kPending);
  pod.waiting_reason = "CreateContainerConfigError";
  pod.waiting_message = "secret \"s3\" not found";
  EXPECT_THAT(ConditionOf(job.Pass(), condition::kCheckpointsRemoved).message,
              HasSubstr("secret \"s3\" not found"));
  job.observed().now += kRemovalPatience;
  const Plan plan = job.Pass();
  EXPECT_THAT(ActionsOf(plan), ElementsAre("end removal", "remove finalizer"));
  ASSERT_THAT(EventsOf(plan), ElementsAre("CheckpointsLeft"));
  EXPECT_THAT(plan.events.front().note, HasSubstr("secret \"s3\" not found"));
}

TEST(CheckpointRemoval, IsGivenUpAtOnceWhereNoPodCanBeMade) {
  DeletedJob job;
  job.observed().namespace_ends = true;
  const Plan plan = job.Pass();
  EXPECT_THAT(ActionsOf(plan), ElementsAre("remove finalizer"));
  EXPECT_THAT(EventsOf(plan), ElementsAre("CheckpointsLeft"));
}

TEST(CheckpointRemoval, EndsWhenItIsNoLongerAsked) {
  DeletedJob job;
  job.Begin();
  job.Removal(PodPhase::kRunning);
  job.observed().job.spec.checkpoint->delete_with_job = false;
  EXPECT_THAT(ActionsOf(job.Pass()), ElementsAre("end removal", "remove finalizer"));
}

// ---- the pod

TEST(RemovalPod, ReachesTheStoreAsTheWorkersDoAndNeedsNothingElse) {
  DeletedJob deleted;
  api::TrainingJob& job = deleted.observed().job;
  job.spec.checkpoint->secret_ref = api::SecretReference{"s3"};
  job.spec.worker.pod_template = *ParseJson(R"json({
    "metadata": {"labels": {"azure.workload.identity/use": "true", "kueue.x-k8s.io/queue-name": "q"},
                 "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack", "mesh": "off"}},
    "spec": {"serviceAccountName": "trainer", "nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu"}],
             "imagePullSecrets": [{"name": "registry"}], "securityContext": {"fsGroup": 7},
             "affinity": {"nodeAffinity": {"n": 1}, "podAntiAffinity": {"p": 1}},
             "schedulingGates": [{"name": "gate"}], "volumes": [{"name": "nfs"}],
             "initContainers": [{"name": "prepare", "image": "i"}],
             "containers": [{"name": "side", "image": "s"},
                            {"name": "trainer", "image": "w", "command": ["train"], "args": ["--fast"],
                             "env": [{"name": "AWS_REGION", "value": "eu"}],
                             "envFrom": [{"configMapRef": {"name": "store"}}],
                             "volumeMounts": [{"name": "nfs", "mountPath": "/checkpoints"}],
                             "resources": {"limits": {"nvidia.com/gpu": 8}},
                             "ports": [{"containerPort": 1}], "livenessProbe": {}}]}})json");
  const Json pod = DesiredRemovalPod(job, false);
  EXPECT_EQ(pod["metadata"]["name"], "job-removal-job-uid");
  EXPECT_EQ(pod["metadata"]["namespace"], "team");
  EXPECT_FALSE(pod["metadata"].contains("ownerReferences"));
  EXPECT_EQ(pod["metadata"]["labels"], (Json{{"azure.workload.identity/use", "true"},
                                             {"lockstep.dev/job", "job"},
                                             {"app.kubernetes.io/managed-by", "lockstep"},
                                             {"app.kubernetes.io/name", "lockstep-removal"}}));
  EXPECT_EQ(pod["metadata"]["annotations"], (Json{{"mesh", "off"}}));
  const Json& spec = pod["spec"];
  for (const char* key : {"nodeSelector", "tolerations", "imagePullSecrets", "securityContext", "volumes"})
    EXPECT_EQ(spec[key], job.spec.worker.pod_template["spec"][key]) << key;
  EXPECT_EQ(spec["serviceAccountName"], "trainer");
  EXPECT_EQ(spec["affinity"], (Json{{"nodeAffinity", {{"n", 1}}}}));
  EXPECT_FALSE(spec.contains("initContainers") || spec.contains("schedulingGates"));
  EXPECT_EQ(spec["restartPolicy"], "Never");
  EXPECT_EQ(spec["activeDeadlineSeconds"], 600);
  ASSERT_EQ(spec["containers"].size(), 1U);
  const Json& container = spec["containers"][0];
  EXPECT_EQ(container["image"], "w");
  EXPECT_EQ(container["command"],
            (Json{"lockstep", "checkpoint", "rm", "s3://bucket/a", "--all-of-job", "job-uid", "--force"}));
  EXPECT_EQ(container["env"].size(), 1U);
  EXPECT_EQ(container["envFrom"][0]["configMapRef"]["name"], "store");
  EXPECT_EQ(container["envFrom"][1]["secretRef"]["name"], "s3");
  EXPECT_EQ(container["volumeMounts"][0]["mountPath"], "/checkpoints");
  EXPECT_FALSE(container["resources"]["limits"].contains("nvidia.com/gpu"));
  EXPECT_FALSE(container.contains("args") || container.contains("ports") ||
               container.contains("livenessProbe"));
  EXPECT_EQ(container["securityContext"]["runAsNonRoot"], true);
}

TEST(RemovalPod, HasTheJobsOwnAccountWhereItIsStillThere) {
  DeletedJob deleted;
  EXPECT_EQ(DesiredRemovalPod(deleted.observed().job, true)["spec"]["serviceAccountName"], "job-worker");
  EXPECT_FALSE(DesiredRemovalPod(deleted.observed().job, false)["spec"].contains("serviceAccountName"));
}

// ---- a whole pass

// Its worker is gone, and no pod was made yet.
class WorldOfADeletedJob : public ::testing::Test {
 protected:
  void SetUp() override {
    world.PatchSpec({{"checkpoint", {{"uri", "s3://bucket/a"}, {"deleteWithJob", true}}}});
    ASSERT_TRUE(world.Settle());
    world.PretendToHaveTrained();
    world.DeleteJob();
    world.SyncCaches();
    world.Reconcile();
    world.FinishDeletions();
    world.SyncCaches();
    ASSERT_THAT(world.pods(), IsEmpty());
    ASSERT_FALSE(world.job().is_null());
  }
  WorldModel world{1, 1, 0};
};

TEST_F(WorldOfADeletedJob, IsReleasedAtOnceWhenItsNamespaceIsBeingDeleted) {
  world.FailNextWrite(ErrorCode::kNotFound);  // the code that BodyOrError returns
  world.Reconcile();
  EXPECT_TRUE(world.job().is_null());
  EXPECT_THAT(world.pods(), IsEmpty());
}

TEST_F(WorldOfADeletedJob, DoesNotActOnAStaleCache) {
  world.PatchSpec({{"checkpoint", {{"deleteWithJob", false}}}});
  world.Reconcile();  // with the stale cache
  EXPECT_THAT(world.pods(), IsEmpty());
  world.SyncCaches();
  world.Reconcile();
  EXPECT_TRUE(world.job().is_null());
}

TEST_F(WorldOfADeletedJob, HasOnePodHoweverOftenItIsBegun) {
  world.LoseNextAnswer();
  world.Reconcile();
  ASSERT_EQ(world.pods().size(), 1U);
  world.Reconcile();  // not in the cache yet
  world.RestartOperator();
  world.Reconcile();
  ASSERT_EQ(world.pods().size(), 1U);
  world.StartPods();
  world.SucceedPod(0);
  world.SyncCaches();
  world.Reconcile();
  EXPECT_TRUE(world.job().is_null());
}

}  // namespace
}  // namespace lockstep::reconcile

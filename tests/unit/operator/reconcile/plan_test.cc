#include "operator/reconcile/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/common/api/conditions.h"
#include "runtime/common/api/names.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using testing::ActionsOf;
using testing::ConditionOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::EventsOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobWorld;
namespace condition = api::condition;

// ---- creation and scale

TEST(MakePlan, CreatesEverythingOfANewJobInTheOrderInWhichItIsNeeded) {
  JobWorld world;
  world.observed().job.metadata.finalizers.clear();
  world.observed().owned.clear();
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("claim the job", "apply Service", "apply ConfigMap",
                                           "create job-worker-0", "create job-worker-1"))
      << "nothing that the spec does not ask for";
  EXPECT_THAT(EventsOf(plan), ElementsAre("PodsCreated"));
  ASSERT_TRUE(plan.rendezvous.has_value());
  EXPECT_EQ(plan.rendezvous->expected_members, 2);
  EXPECT_EQ(plan.rendezvous->min_members, 2);
  EXPECT_EQ(plan.rendezvous->first_round, 1);
  EXPECT_FALSE(plan.rendezvous->straggler.has_value());
  EXPECT_EQ(plan.status.state, "Pending");
  EXPECT_TRUE(plan.status.start_time.has_value());
}

TEST(MakePlan, OrdersItsActionsByTheirStages) {
  JobWorld world;
  world.Replicas(3).Running(0).Failed(1, 1, "no data").Running(7);
  world.observed().job.metadata.finalizers.clear();
  world.observed().owned.clear();
  const Plan plan = MakePlan(world.observed());
  ASSERT_THAT(ActionsOf(plan),
              ElementsAre("claim the job", "apply Service", "apply ConfigMap",
                          "mark job-worker-1 as attempt 1", "delete job-worker-7", "create job-worker-2"));
  EXPECT_TRUE(std::is_sorted(plan.actions.begin(), plan.actions.end(), [](const auto& a, const auto& b) {
    return StageOf(a.action) < StageOf(b.action);
  }));
  EXPECT_EQ(StageOf(plan.actions[1].action), StageOf(plan.actions[2].action)) << "written at the same time";
  EXPECT_EQ(NameOf(plan.actions[3].action), "mark pod");
}

TEST(MakePlan, PassesOnWhatAsksForACheckpoint) {
  JobWorld world;
  api::TrainingJob& job = world.observed().job;
  job.spec.training.emplace();
  job.metadata.annotations["lockstep.dev/save"] = "before the upgrade";
  job.spec.checkpoint.reset();
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->save_request, "") << "there is nowhere to save to";
  job.spec.checkpoint = api::CheckpointSpec{.uri = "file:///checkpoints"};
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->save_request, "before the upgrade");
  job.metadata.annotations["lockstep.dev/save"] = std::string(10'000, 'x');
  EXPECT_LE(MakePlan(world.observed()).rendezvous->save_request.size(), 256U);
  job.spec.training.reset();
  job.spec.checkpoint.reset();
  job.metadata.annotations["lockstep.dev/save"] = "of a script that has joined";
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->save_request, "of a script that has joined");
}

TEST(MakePlan, PassesOnWhatAsksForAProfile) {
  JobWorld world;
  api::TrainingJob& job = world.observed().job;
  job.spec.training.emplace();
  job.spec.checkpoint = api::CheckpointSpec{.uri = "file:///checkpoints"};
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->profile_request, "");
  job.metadata.annotations["lockstep.dev/profile"] = "7 once more";
  const Plan plan = MakePlan(world.observed());
  EXPECT_EQ(plan.rendezvous->profile_request, "7 once more");
  EXPECT_EQ(plan.rendezvous->profile_steps, 7);
  EXPECT_THAT(EventsOf(plan), ::testing::Not(Contains("ProfileRefused")));
  job.metadata.annotations["lockstep.dev/profile"] = "7 " + std::string(10'000, 'x');
  EXPECT_LE(MakePlan(world.observed()).rendezvous->profile_request.size(), 256U);
}

TEST(MakePlan, LetsTheRendezvousLookForStragglersWhereAsked) {
  JobWorld world;
  world.observed().job.spec.health_policy.straggler = api::StragglerPolicy{.factor = 3, .window_steps = 7};
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->straggler, (rendezvous::StragglerSettings{3, 7}));
}

TEST(MakePlan, HasNothingToDoForAJobAsItShouldBe) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 5);
  const Plan first = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(first), IsEmpty());
  world.observed().job.status = first.status;
  const Plan second = MakePlan(world.observed());
  EXPECT_EQ(second.status, first.status);
  EXPECT_THAT(EventsOf(second), IsEmpty());
  EXPECT_EQ(second.requeue_after, std::chrono::seconds(10)) << "to mirror the progress";
}

TEST(MakePlan, LooksForProgressOnlyWhileARoundRuns) {
  JobWorld world;
  world.Running(0).Running(1);
  EXPECT_FALSE(MakePlan(world.observed()).requeue_after.has_value());
}

TEST(MakePlan, DoesNotDependOnTheOrderOfThePods) {
  JobWorld world;
  world.Replicas(4).Running(0).Failed(1, 1).Failed(2, 1).Pending(3).Running(7).Running(5);
  const Plan plan = MakePlan(world.observed());
  for (int i = 0; i < 20; ++i) {
    std::next_permutation(world.observed().pods.begin(), world.observed().pods.end(),
                          [](const Pod& a, const Pod& b) { return a.uid < b.uid; });
    const Plan other = MakePlan(world.observed());
    EXPECT_THAT(ActionsOf(other), ::testing::UnorderedElementsAreArray(ActionsOf(plan)));
    EXPECT_EQ(other.status, plan.status);
  }
}

TEST(MakePlan, NamesThePodsWhoseNodesDepart) {
  JobWorld world;
  world.Running(0).Running(1);
  EXPECT_TRUE(MakePlan(world.observed()).rendezvous->departures.empty()) << "nothing is known of nodes";
  world.observed().nodes = {{"node-0", {}},
                            {"node-1", {.taints = {{"karpenter.sh/disrupted", "NoSchedule"}}}}};
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->departures,
            (std::map<int, std::string>{{1, "the node has the taint karpenter.sh/disrupted"}}));
}

TEST(MakePlan, ScalesUpByCreatingTheMissingSlots) {
  JobWorld world;
  world.Elastic(1, 4).Replicas(4).Running(0).Running(2);
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("create job-worker-1", "create job-worker-3"));
}

TEST(MakePlan, TakesManyPodsInSeveralPasses) {
  JobWorld world;
  world.Replicas(250);
  for (const auto& [first, last] : {std::pair(0, 99), std::pair(100, 199), std::pair(200, 249)}) {
    const Plan plan = MakePlan(world.observed());
    ASSERT_EQ(ActionsOf(plan).size(), static_cast<std::size_t>(last + 1 - first));
    EXPECT_EQ(ActionsOf(plan).front(), "create " + api::PodName("job", first));
    EXPECT_EQ(ActionsOf(plan).back(), "create " + api::PodName("job", last));
    EXPECT_EQ(plan.requeue_after, last < 249 ? std::optional(std::chrono::milliseconds(0)) : std::nullopt);
    for (int slot = first; slot <= last; ++slot) world.Running(slot);
  }
  world.observed().job.spec.suspend = true;
  const Plan plan = MakePlan(world.observed());
  EXPECT_EQ(ActionsOf(plan).size(), 100U);
  EXPECT_EQ(ActionsOf(plan).front(), "delete " + api::PodName("job", 249));
  EXPECT_EQ(plan.requeue_after, std::chrono::milliseconds(0));
}

TEST(MakePlan, ReplacesLostPodsBeforeItStartsNewOnes) {
  JobWorld world;
  world.Elastic(1, 400).Replicas(400);
  for (int slot = 0; slot < 200; ++slot) {
    if (slot != 150) world.Running(slot);
  }
  EXPECT_EQ(ActionsOf(MakePlan(world.observed())).front(), "create " + api::PodName("job", 150));
}

TEST(MakePlan, ScalesDownByDeletingTheHighestSlots) {
  JobWorld world;
  world.Elastic(1, 4).Replicas(2).Running(0).Running(1).Running(2).Running(3);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-3", "delete job-worker-2"));
  EXPECT_EQ(plan.rendezvous->expected_members, 2);
}

TEST(MakePlan, CreatesStandbysInAdditionToTheReplicas) {
  JobWorld world;
  world.observed().job.spec.standby_replicas = 1;
  world.Running(0).Running(1);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("create job-worker-2"));
  EXPECT_EQ(plan.rendezvous->expected_members, 2);
  EXPECT_EQ(plan.rendezvous->standby_members, 1);
  EXPECT_EQ(ConditionOf(plan, condition::kScheduled).status, api::ConditionStatus::kFalse);
}

TEST(MakePlan, ReplacesADeadStandbyLikeAnyOther) {
  JobWorld world;
  world.observed().job.spec.standby_replicas = 1;
  world.Running(0).Running(1).Failed(2, 1).Round(1, {0, 1}, 5);
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("mark job-worker-2 as attempt 1"));
}

TEST(MakePlan, LeavesNoPlaceToTheWorkersOfASuspendedJob) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 5);
  world.observed().job.spec.suspend = true;
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->expected_members, 0) << "leaving is no failure then";
}

TEST(MakePlan, WaitsForATerminatingPodBeforeItFillsTheSlotAgain) {
  JobWorld world;
  world.Running(0);
  world.Add(1, PodPhase::kRunning).deleting = true;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), IsEmpty());
}

TEST(MakePlan, RevertsForeignChanges) {
  JobWorld world;
  world.Running(0).Running(1);
  world.Owned(kube::kServices)["spec"]["publishNotReadyAddresses"] = false;
  world.Owned(kube::kConfigMaps)["data"].erase("config.json");
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("apply Service", "apply ConfigMap"));
}

const Json& ServiceOf(const Plan& plan) {
  for (const PlannedAction& entry : plan.actions) {
    const auto* apply = std::get_if<ApplyObject>(&entry.action);
    if (apply != nullptr && apply->resource == kube::kServices) return apply->object;
  }
  static const Json none;
  return none;
}

TEST(MakePlan, SetsTheSelectorOfTheServiceOnceThereArePods) {
  JobWorld world;
  world.observed().owned.clear();
  const Json before = ServiceOf(MakePlan(world.observed()));
  EXPECT_EQ(before.at("spec").at("clusterIP"), "None");
  EXPECT_FALSE(before.at("spec").contains("selector"));
  EXPECT_EQ(before.at("spec").at("ipFamilyPolicy"), "SingleStack") << "or it must never select";
  world.SyncObjects().Owned(kube::kServices) = before;
  world.Owned(kube::kServices)["spec"]["ipFamilyPolicy"] =
      "PreferDualStack";  // set by a webhook of the cluster
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("create job-worker-0", "create job-worker-1"));
  world.Pending(0);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("apply Service", "create job-worker-1"));
  EXPECT_TRUE(ServiceOf(plan).at("spec").contains("selector"));
}

TEST(MakePlan, SetsTheSelectorOfTheServiceWithTheLastPodsOrTheFirstRound) {
  JobWorld world;
  world.Replicas(250).Owned(kube::kServices)["spec"].erase("selector");
  for (int slot = 0; slot < 149; ++slot) world.Running(slot);
  EXPECT_TRUE(ServiceOf(MakePlan(world.observed())).is_null()) << "more pods are to come than a pass creates";
  world.observed().job.status.rendezvous = api::RendezvousStatus{1, 149};
  EXPECT_TRUE(ServiceOf(MakePlan(world.observed())).at("spec").contains("selector"));
  world.observed().job.status.rendezvous.reset();
  world.Running(149);
  EXPECT_TRUE(ServiceOf(MakePlan(world.observed())).at("spec").contains("selector"));
}

TEST(MakePlan, LeavesAServiceThatSelectsAloneWhenItsPodsAreGone) {
  JobWorld world;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("create job-worker-0", "create job-worker-1"));
}

TEST(MakePlan, ContinuesRoundsAboveTheOneInTheStatus) {
  JobWorld world;
  world.Running(0).Running(1);
  world.observed().job.status.rendezvous = api::RendezvousStatus{7, 2};
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->first_round, 8);
}

// ---- foreign jobs and invalid jobs

TEST(MakePlan, LeavesJobsOfOtherControllersAlone) {
  JobWorld world;
  world.observed().job.spec.managed_by = "kueue.x-k8s.io/multikueue";
  EXPECT_TRUE(MakePlan(world.observed()).ignored);
  world.observed().job.spec.managed_by = api::kManagedByLockstep;
  EXPECT_FALSE(MakePlan(world.observed()).ignored);
}

TEST(MakePlan, LeavesJobsOfOtherInstallationsAlone) {
  constexpr const char* kDefault = "lockstep.dev/operator";
  constexpr const char* kTeam = "example.com/team-a";
  for (const auto& [of_job, of_operator, is_ours] :
       {std::tuple("", kDefault, true), std::tuple(kDefault, kDefault, true),
        std::tuple(kTeam, kDefault, false), std::tuple("", kTeam, false), std::tuple(kDefault, kTeam, false),
        std::tuple(kTeam, kTeam, true)}) {
    JobWorld world;
    world.observed().job.spec.managed_by = of_job;
    world.observed().settings.managed_by = of_operator;
    EXPECT_EQ(MakePlan(world.observed()).ignored, !is_ours) << of_job << " seen by " << of_operator;
  }
}

TEST(MakePlan, LeavesAJobThatAnotherInstallationHasClaimedAlone) {
  JobWorld world;
  auto& installation = world.observed().job.metadata.annotations[std::string(api::kAnnotationInstallation)];
  world.observed().settings.installation = "team-b/lockstep-leader";
  installation = "team-b/lockstep-leader";
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("create job-worker-0", "create job-worker-1"));
  installation = "team-a/lockstep-leader";
  for (const bool is_deleted : {false, true}) {
    if (is_deleted) world.observed().job.metadata.deletion_timestamp = world.observed().now;
    const Plan plan = MakePlan(world.observed());
    EXPECT_TRUE(plan.ignored);
    EXPECT_THAT(plan.actions, IsEmpty());
    ASSERT_THAT(EventsOf(plan), ElementsAre("InstallationConflict"));
    EXPECT_THAT(plan.events[0].note,
                HasSubstr("the installation with the Lease team-a/lockstep-leader runs this job"));
  }
}

TEST(MakePlan, TakesAnAbandonedJobOverWhenItsWorkersHaveEnded) {
  JobWorld world;
  auto& installation = world.observed().job.metadata.annotations[std::string(api::kAnnotationInstallation)];
  installation = "team-a/lockstep-leader";
  world.observed().settings.installation = "team-b/lockstep-leader";
  world.observed().settings.takes_over = true;
  const auto note = [&] { return MakePlan(world.observed()).events.at(0).note; };
  EXPECT_TRUE(MakePlan(world.observed()).ignored);
  EXPECT_THAT(note(), HasSubstr("If the first does not renew its Lease for some minutes"));
  world.observed().claim_is_abandoned = true;
  world.Running(0);
  EXPECT_TRUE(MakePlan(world.observed()).ignored);
  EXPECT_THAT(note(), HasSubstr("the other takes the job over when its workers have ended"));
  world.observed().pods.clear();
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), Contains("claim the job"));
}

TEST(MakePlan, EndsTheWorkersOfAnAbandonedJobThatIsDeleted) {
  JobWorld world;
  world.observed().job.metadata.annotations[std::string(api::kAnnotationInstallation)] =
      "team-a/lockstep-leader";
  world.observed().settings.installation = "team-b/lockstep-leader";
  world.observed().claim_is_abandoned = true;
  world.Running(0);
  world.observed().job.metadata.deletion_timestamp = world.observed().now;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), Contains("delete job-worker-0"));
}

TEST(MakePlan, ClaimsARunningJobThatNoInstallationHasClaimed) {
  JobWorld world;
  world.Running(0).Running(1);
  world.observed().settings.installation = "team-b/lockstep-leader";
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), Contains("claim the job"));
}

TEST(MakePlan, LeavesJobsOfOtherNamespacesAlone) {
  JobWorld world;
  world.observed().is_namespace_ours = false;
  EXPECT_TRUE(MakePlan(world.observed()).ignored);
}

TEST(MakePlan, FailsAnInvalidJobWithoutStartingPods) {
  JobWorld world;
  world.observed().job.metadata.finalizers.clear();
  world.observed().violations = {"spec.worker.replicas: must be at least 1, not 0", "spec.b: is wrong"};
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_FALSE(plan.rendezvous.has_value());
  const api::Condition failed = ConditionOf(plan, condition::kFailed);
  EXPECT_EQ(failed.reason, "InvalidSpec");
  EXPECT_EQ(failed.message, "spec.worker.replicas: must be at least 1, not 0; spec.b: is wrong");
  EXPECT_EQ(plan.status.state, "Failed");
  EXPECT_THAT(EventsOf(plan), ElementsAre("InvalidSpec"));
}

// `helm upgrade` updates the definition before the operator, and a rollback of the image alone keeps it.
TEST(MakePlan, HoldsAJobThatTheDefinitionAllowsAndTheOperatorCannotRead) {
  JobWorld world;
  world.observed().unreadable = {"spec.worker.newField: unknown field"};
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ::testing::Not(::testing::Contains("create job-worker-0")));
  EXPECT_EQ(plan.status.state, "Stalled");
  const api::Condition stalled = ConditionOf(plan, condition::kStalled);
  EXPECT_EQ(stalled.reason, "VersionMismatch");
  EXPECT_THAT(stalled.message, ::testing::StartsWith("spec.worker.newField: unknown field; the definition"));
  world.observed().job.status = plan.status;
  world.observed().unreadable.clear();
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ::testing::Contains("create job-worker-0"));
}

// Two pods train; then the user sets an invalid spec.
JobWorld WorldThatBecameInvalid() {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 5);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().job.metadata.generation = 2;
  world.observed().job.spec.worker.replicas = 1;
  world.observed().violations = {"spec.worker.replicas: must be within elasticPolicy, 2 to 4"};
  return world;
}

TEST(MakePlan, LetsAJobTrainOnWhoseSpecBecameInvalid) {
  JobWorld world = WorldThatBecameInvalid();
  world.Failed(2, 1);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_TRUE(plan.keeps_rendezvous);
  EXPECT_FALSE(plan.rendezvous.has_value());
  const api::Condition stalled = ConditionOf(plan, condition::kStalled);
  EXPECT_EQ(stalled.reason, "InvalidSpec");
  EXPECT_EQ(stalled.message, "spec.worker.replicas: must be within elasticPolicy, 2 to 4");
  EXPECT_EQ(plan.status.state, "Stalled");
  EXPECT_EQ(plan.status.observed_generation, 2);
  EXPECT_THAT(EventsOf(plan), ElementsAre("InvalidSpec"));
  EXPECT_EQ(plan.status.goodput->activity, api::Activity::kTraining);
  world.observed().job.status = plan.status;
  EXPECT_EQ(MakePlan(world.observed()).status, plan.status) << "and nothing is written";
}

TEST(MakePlan, BringsAnotherAuthorityToPodsOfAJobWhoseSpecBecameInvalid) {
  JobWorld world = WorldThatBecameInvalid();
  world.observed().settings.ca_pem = "pem and another";
  const Plan plan = MakePlan(world.observed());
  ASSERT_THAT(ActionsOf(plan), ElementsAre("apply ConfigMap"));
  Json& current = world.Owned(kube::kConfigMaps);
  Json wanted = current["data"];
  wanted["ca.crt"] = "pem and another";
  const Json applied = std::get<ApplyObject>(plan.actions.front().action).object;
  EXPECT_EQ(applied["data"], wanted) << "what pods were started with stays";
  EXPECT_EQ(applied["metadata"], current["metadata"]);
}

TEST(MakePlan, LooksForTheProgressOfAJobThatTrainsOnButNotOfASuspendedOne) {
  JobWorld world = WorldThatBecameInvalid();
  EXPECT_EQ(MakePlan(world.observed()).requeue_after, std::chrono::seconds(10));
  world.observed().job.spec.suspend = true;
  EXPECT_FALSE(MakePlan(world.observed()).requeue_after.has_value());
}

TEST(MakePlan, RecoversOnceTheSpecIsCorrected) {
  JobWorld world = WorldThatBecameInvalid();
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().violations.clear();
  world.observed().job.spec.worker.replicas = 2;
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_TRUE(plan.rendezvous.has_value());
  EXPECT_EQ(plan.status.state, "Running");
}

TEST(MakePlan, CompletesAndSuspendsAJobWhateverItsSpecSays) {
  JobWorld done = WorldThatBecameInvalid();
  done.observed().pods.clear();
  done.Succeeded(0).Succeeded(1);
  EXPECT_EQ(MakePlan(done.observed()).status.state, "Complete");
  JobWorld suspended = WorldThatBecameInvalid();
  suspended.observed().job.spec.suspend = true;
  const Plan plan = MakePlan(suspended.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1", "delete job-worker-0"));
  EXPECT_EQ(plan.rendezvous->expected_members, 0);
}

// ---- failures

TEST(MakePlan, MarksThenCountsThenReplacesAFailedPod) {
  JobWorld world;
  world.Running(0).Failed(1, 1, "lost the network");
  Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("mark job-worker-1 as attempt 1"));
  EXPECT_EQ(plan.status.attempt, 1);
  EXPECT_THAT(EventsOf(plan), Contains("ReplicaFailed"));

  // The mark was written but not the status, because the operator died between the writes.
  world.observed().pods[1].attempt = 1;
  plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty()) << "not before the status reports it";
  EXPECT_EQ(plan.status.attempt, 1);

  world.observed().job.status = plan.status;
  plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1"));
  EXPECT_EQ(plan.status.attempt, 1) << "one failure, one attempt, however often it is looked at";

  world.observed().pods.pop_back();
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("create job-worker-1"));
}

TEST(MakePlan, CountsPodsThatFailTogetherOnce) {
  JobWorld world;
  world.Failed(0, 137, "OOMKilled").Failed(1, 1);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan),
              ElementsAre("mark job-worker-0 as attempt 1", "mark job-worker-1 as attempt 1"));
  EXPECT_EQ(plan.status.attempt, 1);
}

TEST(MakePlan, FailsTheJobWhenTheRestartsAreUsedUp) {
  JobWorld world;
  world.MaxRestarts(2).Running(0).Failed(1, 1, "lost the network");
  world.observed().job.status.attempt = 2;
  const Plan plan = MakePlan(world.observed());
  const api::Condition failed = ConditionOf(plan, condition::kFailed);
  EXPECT_EQ(failed.reason, "MaxRestartsExceeded");
  EXPECT_THAT(failed.message, HasSubstr("2 of 2 restarts"));
  EXPECT_THAT(failed.message, HasSubstr("lost the network"));
  EXPECT_EQ(plan.status.attempt, 2);
  EXPECT_THAT(ActionsOf(plan), ElementsAre()) << "first the status";
  world.observed().job.status = plan.status;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete job-worker-0"))
      << "cleanPodPolicy Running";
}

TEST(MakePlan, FailsTheJobAtOnceOnAnErrorThatCannotPass) {
  const struct {
    int exit_code;
    std::string reason;
  } cases[] = {{2, "BadConfiguration"}, {3, "UserError"}, {4, "ObjectStoreUnavailable"}};
  for (const auto& test : cases) {
    JobWorld world;
    world.Running(0).Failed(1, test.exit_code, "spec.training.data.path: no such folder\n");
    const Plan plan = MakePlan(world.observed());
    const api::Condition failed = ConditionOf(plan, condition::kFailed);
    EXPECT_EQ(failed.reason, test.reason);
    EXPECT_EQ(failed.message, "pod job-worker-1: exit code " + std::to_string(test.exit_code) +
                                  ": spec.training.data.path: no such folder");
    EXPECT_EQ(plan.status.attempt, 0);
  }
}

TEST(MakePlan, ChargesNoRestartForAPreemption) {
  const auto disrupted = [](Pod& pod) { pod.disrupted = true; };
  const auto told_to_stop = [](Pod& pod) { pod.exit_code = 143; };
  for (const std::function<void(Pod&)>& change : {std::function<void(Pod&)>(disrupted), {told_to_stop}}) {
    JobWorld world;
    world.MaxRestarts(0).Running(0);
    change(world.Add(1, PodPhase::kFailed));
    const Plan plan = MakePlan(world.observed());
    EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1"));
    EXPECT_EQ(plan.status.attempt, 0);
  }
}

TEST(MakePlan, DoesNotTreatTheExitCodeOfADisruptedPodAsAUserError) {
  const auto disrupted = [](Pod& pod) { pod.disrupted = true; };
  const auto deleting = [](Pod& pod) { pod.deleting = true; };
  for (const std::function<void(Pod&)>& change : {std::function<void(Pod&)>(disrupted), {deleting}}) {
    JobWorld world;
    world.Running(0).Failed(1, 4, "no object store");
    change(world.observed().pods.back());
    const Plan plan = MakePlan(world.observed());
    EXPECT_FALSE(api::IsFinished(plan.status.conditions));
    EXPECT_EQ(plan.status.attempt, 0);
  }
}

TEST(MakePlan, ReplacesAPodThatEndsAtOnceWithoutBudgetOnlyAfterAWhile) {
  JobWorld world;
  world.Running(0);
  Pod& pod = world.Add(1, PodPhase::kFailed);
  pod.exit_code = 143;
  pod.created = world.observed().now - std::chrono::seconds(2);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(8));
}

// ---- suspend, deadline

TEST(MakePlan, SuspendsByDeletingPodsAndResumesWithoutCallingItARestart) {
  JobWorld world;
  world.Running(0).Running(1).Round(3, {0, 1}, 50);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().job.spec.suspend = true;
  Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1", "delete job-worker-0"));
  EXPECT_TRUE(plan.rendezvous.has_value()) << "the workers leave it while they save";
  EXPECT_EQ(plan.status.state, "Suspended");
  EXPECT_FALSE(plan.status.start_time.has_value());
  EXPECT_THAT(EventsOf(plan), Contains("SuspendRequested"));

  world.observed().pods.clear();
  world.observed().job.status = plan.status;
  plan = MakePlan(world.observed());
  EXPECT_FALSE(plan.rendezvous.has_value());

  world.observed().rendezvous = {};
  world.observed().job.spec.suspend = false;
  plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("create job-worker-0", "create job-worker-1"));
  EXPECT_EQ(plan.status.state, "Pending");
  EXPECT_EQ(plan.rendezvous->first_round, 4);
  EXPECT_EQ(plan.status.progress->step, 50) << "what was reached is not forgotten";
  EXPECT_THAT(EventsOf(plan), Contains("Resumed"));
}

TEST(MakePlan, FailsAJobAtItsDeadline) {
  JobWorld world;
  world.Running(0).Running(1);
  world.observed().job.spec.run_policy.active_deadline_seconds = 60;
  world.observed().job.status.start_time = world.observed().now - std::chrono::seconds(59);
  EXPECT_EQ(MakePlan(world.observed()).requeue_after, std::chrono::seconds(1));
  world.observed().now += std::chrono::seconds(1);
  const Plan plan = MakePlan(world.observed());
  EXPECT_EQ(ConditionOf(plan, condition::kFailed).reason, "DeadlineExceeded");
  world.observed().job.status = plan.status;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("delete job-worker-1", "delete job-worker-0"));
}

// ---- the end

TEST(MakePlan, LetsTheOthersLeaveOnceOneWorkerReachedTheEnd) {
  JobWorld world;
  world.Replicas(3).Succeeded(0).Running(1).Failed(2, 1);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty()) << "no pod is started again";
  EXPECT_FALSE(api::IsFinished(plan.status.conditions));
}

TEST(MakePlan, CompletesWhenNoPodRunsAnyMore) {
  JobWorld world;
  world.Replicas(3).Succeeded(0).Failed(1, 1).Pending(2);
  const Plan plan = MakePlan(world.observed());
  EXPECT_EQ(plan.status.state, "Complete");
  EXPECT_TRUE(plan.status.completion_time.has_value());
  EXPECT_THAT(EventsOf(plan), ElementsAre("TrainingDone"));
  world.observed().job.status = plan.status;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete job-worker-2"));
}

TEST(MakePlan, CompletesWhenAWorkerReportsTheEnd) {
  JobWorld world;
  world.observed().rendezvous.completed = true;
  EXPECT_EQ(MakePlan(world.observed()).status.state, "Complete");
}

TEST(MakePlan, CleansPodsByPolicyAndNeverStartsAny) {
  const struct {
    api::CleanPodPolicy policy;
    std::vector<std::string> actions;
  } cases[] = {{api::CleanPodPolicy::kRunning, {"delete job-worker-1"}},
               {api::CleanPodPolicy::kAll, {"delete job-worker-1", "delete job-worker-0"}},
               {api::CleanPodPolicy::kNone, {}}};
  for (const auto& test : cases) {
    JobWorld world;
    world.Replicas(3).Succeeded(0).Running(1);
    world.observed().job.spec.run_policy.clean_pod_policy = test.policy;
    api::SetCondition(world.observed().job.status.conditions,
                      {condition::kFailed, api::ConditionStatus::kTrue, "UserError", ""}, 1,
                      world.observed().now);
    EXPECT_EQ(ActionsOf(MakePlan(world.observed())), test.actions);
  }
}

// Otherwise a crash between the two writes would lose the end, and the training would start again.
TEST(MakePlan, SaysThatAJobIsCompleteBeforeItsPodsGo) {
  JobWorld world;
  world.Succeeded(0).Succeeded(1);
  world.observed().job.spec.run_policy.clean_pod_policy = api::CleanPodPolicy::kAll;
  const Plan plan = MakePlan(world.observed());
  EXPECT_EQ(plan.status.state, "Complete");
  EXPECT_THAT(ActionsOf(plan), ElementsAre());
  world.observed().job.status = plan.status;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("delete job-worker-1", "delete job-worker-0"));
}

// A stale cache may still list pods that have long ended.
TEST(MakePlan, EndsOnlyPodsOfAFinishedJobThatStillRun) {
  JobWorld world;
  world.Replicas(1).Running(0);
  api::SetCondition(world.observed().job.status.conditions,
                    {condition::kFailed, api::ConditionStatus::kTrue, "UserError", ""}, 1,
                    world.observed().now);
  const Plan plan = MakePlan(world.observed());
  ASSERT_EQ(plan.actions.size(), 1U);
  const auto* deletion = std::get_if<DeletePod>(&plan.actions[0].action);
  ASSERT_NE(deletion, nullptr);
  EXPECT_EQ(deletion->resource_version, world.observed().pods[0].resource_version);
}

TEST(MakePlan, DeletesAFinishedJobAfterItsTime) {
  JobWorld world;
  world.Succeeded(0).Succeeded(1);
  world.observed().job.spec.run_policy.ttl_seconds_after_finished = 100;
  Plan plan = MakePlan(world.observed());
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(100));
  world.observed().job.status = plan.status;
  world.observed().now += std::chrono::seconds(100);
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete the job"));
}

TEST(MakePlan, LooksAtNothingAgainWhoseTimeHasJustCome) {
  JobWorld world;
  world.Succeeded(0).Succeeded(1);
  world.observed().job.spec.run_policy.ttl_seconds_after_finished = 100;
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().now += std::chrono::seconds(100);
  EXPECT_FALSE(MakePlan(world.observed()).requeue_after.has_value());
}

// ---- deletion

TEST(MakePlan, HoldsADeletedJobUntilItsPodsAreGone) {
  JobWorld world;
  world.Running(0).Failed(1, 1);
  world.observed().job.metadata.deletion_timestamp = world.observed().now;
  Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1", "delete job-worker-0"));
  EXPECT_EQ(plan.status, world.observed().job.status);
  world.observed().pods.clear();
  plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("remove finalizer"));
  EXPECT_FALSE(plan.rendezvous.has_value());
}

// ---- start deadline, and fewer pods

TEST(MakePlan, FailsAJobThatMakesNoStepInTime) {
  JobWorld world;
  world.Pending(0).Running(1);
  world.observed().pods[0].unschedulable = "0/3 nodes fit";
  world.observed().job.spec.run_policy.startup_deadline_seconds = 60;
  world.observed().job.status.start_time = world.observed().now - std::chrono::seconds(59);
  const Plan early = MakePlan(world.observed());
  EXPECT_FALSE(api::IsFinished(early.status.conditions));
  EXPECT_EQ(early.requeue_after, std::chrono::seconds(1));
  world.observed().now += std::chrono::seconds(1);
  const api::Condition failed = ConditionOf(MakePlan(world.observed()), condition::kFailed);
  EXPECT_EQ(failed.reason, "StartupDeadlineExceeded");
  EXPECT_EQ(failed.message,
            "no step within runPolicy.startupDeadlineSeconds, 60; last: pod job-worker-0: 0/3 nodes fit");
}

TEST(MakePlan, KeepsAJobThatEverMadeAStepBeyondTheStartupDeadline) {
  JobWorld world;
  world.Pending(0).Pending(1);
  world.observed().job.spec.run_policy.startup_deadline_seconds = 60;
  world.observed().job.status.start_time = world.observed().now - std::chrono::hours(1);
  world.observed().job.status.progress = api::ProgressStatus{.step = 1};
  EXPECT_FALSE(api::IsFinished(MakePlan(world.observed()).status.conditions));
}

TEST(MakePlan, SaysThatAnElasticJobHasShrunkWhereThereIsNoRoom) {
  JobWorld world;
  world.Elastic(1, 4).Running(0).Pending(1).Round(2, {0}, 5);
  world.observed().pods[1].created = world.observed().now - std::chrono::seconds(55);
  const Plan early = MakePlan(world.observed());
  EXPECT_EQ(ConditionOf(early, condition::kDegraded).reason, "ReplicasMissing");
  EXPECT_EQ(early.requeue_after, std::chrono::seconds(5));
  world.observed().job.status = early.status;
  world.observed().now += std::chrono::seconds(5);
  const Plan plan = MakePlan(world.observed());
  EXPECT_EQ(ConditionOf(plan, condition::kDegraded).reason, "Shrunk");
  EXPECT_THAT(EventsOf(plan), Contains("Shrunk"));
  EXPECT_THAT(ActionsOf(plan), IsEmpty()) << "the pod stays pending";
}

}  // namespace
}  // namespace lockstep::reconcile

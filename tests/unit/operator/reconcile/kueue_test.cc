#include "operator/reconcile/kueue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/kueue_priority.h"
#include "operator/reconcile/kueue_workload.h"
#include "operator/reconcile/plan.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

namespace condition = api::condition;
using testing::ActionsOf;
using testing::ConditionOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobWorld;

const std::string kKey = KeyOfKind(kWorkloads);

class KueueTest : public ::testing::Test {
 protected:
  KueueTest() {
    world_.observed().served = {kKey};
    world_.observed().job.spec.scheduling_policy.queue_name = "research";
  }
  Observed& observed() { return world_.observed(); }
  Json& workload() { return observed().owned.at(kKey); }
  void Queue() {
    observed().owned[kKey] = DesiredWorkload(observed()).object;
    workload()["metadata"]["resourceVersion"] = "7";
    workload()["status"]["conditions"] = Json::array();
  }
  void Say(const std::string& type, const std::string& status, const std::string& why = "Why",
           const std::string& message = "as Kueue says") {
    Json& conditions = workload()["status"]["conditions"];
    for (Json& entry : conditions) {
      if (entry["type"] != type) continue;
      entry["status"] = status;
      return;
    }
    conditions.push_back({{"type", type},
                          {"status", status},
                          {"reason", why},
                          {"message", message},
                          {"lastTransitionTime", "2026-01-01T00:00:00Z"}});
  }
  void Admit(const std::string& assignment = R"({"name": "main", "flavors": {"cpu": "spot"}, "count": 2})") {
    Queue();
    Say("QuotaReserved", "True");
    Say("Admitted", "True");
    workload()["status"]["admission"] = {{"clusterQueue", "all"},
                                         {"podSetAssignments", Json::array({*ParseJson(assignment)})}};
    observed().flavors["spot"] = *ParseJson(
        R"({"spec": {"nodeLabels": {"kind": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}})");
  }
  void Label(const std::string& name) {
    observed().job.metadata.labels["kueue.x-k8s.io/priority-class"] = name;
  }
  // The priority class of the job.
  void Class(const std::string& name, int32_t value) {
    observed().priority_class = {{"metadata", {{"name", name}}}, {"value", value}};
  }
  Json SpecOfWorkload() { return DesiredWorkload(observed()).object["spec"]; }
  // Applies the decision of a pass to the world, as the API server would.
  Plan Pass() {
    Plan plan = MakePlan(observed());
    observed().job.status = plan.status;
    return plan;
  }
  static Json PodOf(const Plan& plan) {
    for (const PlannedAction& entry : plan.actions) {
      if (const auto* pod = std::get_if<CreatePod>(&entry.action)) return pod->object;
    }
    return {};
  }
  static const PatchStatus* PatchOf(const Plan& plan) {
    for (const PlannedAction& entry : plan.actions) {
      if (const auto* patch = std::get_if<PatchStatus>(&entry.action)) return patch;
    }
    return nullptr;
  }
  static std::string Of(const PatchStatus& patch, const std::string& type) {
    for (const Json& entry : patch.status["conditions"]) {
      if (entry["type"] == type) return entry.value("status", "") + " " + entry.value("reason", "");
    }
    return "";
  }

  JobWorld world_;
};

TEST_F(KueueTest, AJobQueuesWithoutPods) {
  const Plan plan = Pass();
  ASSERT_THAT(ActionsOf(plan), ElementsAre("apply Workload"));
  const Json& object = std::get<ApplyObject>(plan.actions[0].action).object;
  EXPECT_EQ(object["spec"]["queueName"], "research");
  EXPECT_EQ(object["spec"]["active"], true);
  EXPECT_EQ(object["spec"]["podSets"][0]["count"], 2);
  EXPECT_FALSE(object["spec"]["podSets"][0].contains("minCount"));
  EXPECT_EQ(object["spec"]["podSets"][0]["template"], observed().job.spec.worker.pod_template);
  EXPECT_EQ(object["spec"]["podSets"][0]["topologyRequest"],
            *ParseJson(R"({"podIndexLabel": "lockstep.dev/slot"})"));
  EXPECT_FALSE(object["spec"].contains("priority"));
  EXPECT_EQ(plan.status.state, "Suspended");
  EXPECT_EQ(ConditionOf(plan, condition::kSuspended).reason, "Queued");
  EXPECT_EQ(ConditionOf(plan, condition::kQuotaReserved).message, "waits in queue research");
}

TEST_F(KueueTest, NoPodIsMadeBeforeAllIsAdmitted) {
  Queue();
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty());
  Say("QuotaReserved", "True", "QuotaReserved", "reserved");
  const Plan plan = Pass();
  EXPECT_THAT(ActionsOf(plan), IsEmpty()) << "admission checks are not through";
  EXPECT_EQ(ConditionOf(plan, condition::kSuspended).message, "waits in queue research: reserved");
  Admit();
  observed().flavors.clear();
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty()) << "where the pods may go is not known";
}

TEST_F(KueueTest, PodsGoWhereTheQuotaIs) {
  Admit();
  observed().job.spec.worker.pod_template["spec"]["tolerations"] =
      Json::array({{{"key", "mine"}, {"operator", "Exists"}}});
  Admit();
  workload()["status"]["admissionChecks"] = *ParseJson(
      R"([{"name": "check", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"l": "1"},
           "annotations": {"a": "2"}, "nodeSelector": {"pool": "p"}, "tolerations": [{"key": "mine", "operator": "Exists"}]}]}])");
  const Plan plan = Pass();
  const Json pod = PodOf(plan);
  EXPECT_EQ(pod["spec"]["nodeSelector"], *ParseJson(R"({"kind": "spot", "pool": "p"})"));
  EXPECT_EQ(pod["spec"]["tolerations"],
            *ParseJson(R"([{"key": "mine", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}])"));
  EXPECT_EQ(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], "main");
  EXPECT_EQ(pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"], "distributedtrainingjob-job");
  EXPECT_FALSE(pod["spec"].contains("schedulingGates"));
  EXPECT_EQ(pod["metadata"]["labels"]["l"], "1");
  EXPECT_EQ(pod["metadata"]["annotations"]["a"], "2");
  EXPECT_EQ(ConditionOf(plan, condition::kQuotaReserved).reason, "Admitted");
}

TEST_F(KueueTest, AnElasticJobStartsWithFewerPods) {
  world_.Replicas(4).Elastic(2, 4);
  observed().job.spec.scheduling_policy.queue_name = "research";
  EXPECT_EQ(DesiredWorkload(observed()).object["spec"]["podSets"][0]["minCount"], 2);
  Admit(R"({"name": "main", "flavors": {"cpu": "spot"}, "count": 3})");
  const Plan plan = Pass();
  EXPECT_THAT(ActionsOf(plan), Contains("create job-worker-2"));
  EXPECT_THAT(ActionsOf(plan), ::testing::Not(Contains("create job-worker-3")));
}

TEST_F(KueueTest, AJobIsNotAdmittedWithFewerPodsThanItsGang) {
  world_.Replicas(4).Elastic(2, 4);
  observed().job.spec.scheduling_policy.queue_name = "research";
  observed().job.spec.scheduling_policy.gang = api::GangPolicy{.min_count = 3};
  EXPECT_EQ(DesiredWorkload(observed()).object["spec"]["podSets"][0]["minCount"], 3);
}

TEST_F(KueueTest, PodsThatRunStayWhereAFlavorChanges) {
  Admit();
  const Json pod = PodOf(Pass());
  observed().flavors["spot"]["spec"]["nodeLabels"]["more"] = "yes";
  const Json later = PodOf(Pass());
  EXPECT_NE(pod["spec"]["nodeSelector"], later["spec"]["nodeSelector"]);
  EXPECT_EQ(pod["metadata"]["annotations"], later["metadata"]["annotations"]) << "the hash of the template";
}

TEST_F(KueueTest, QueuesWithThePriorityOfItsClass) {
  Label("urgent");
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty()) << "Kueue takes none without its class, either";
  EXPECT_EQ(ConditionOf(Pass(), condition::kSuspended).reason, "QueueUnavailable");
  EXPECT_EQ(ConditionOf(Pass(), condition::kQuotaReserved).message,
            "metadata.labels[kueue.x-k8s.io/priority-class]: there is no WorkloadPriorityClass \"urgent\" "
            "that the operator may read; create it, or name another");
  Class("urgent", 100);
  EXPECT_THAT(ActionsOf(Pass()), ElementsAre("apply Workload"));
  EXPECT_EQ(SpecOfWorkload()["priority"], 100);
  EXPECT_EQ(SpecOfWorkload()["priorityClassRef"],
            *ParseJson(R"({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"})"));
}

TEST_F(KueueTest, QueuesWithThePriorityOfItsPods) {
  observed().job.spec.worker.pod_template["spec"]["priorityClassName"] = "of-template";
  EXPECT_EQ(PriorityClassOf(observed().job)->name, "of-template");
  observed().job.spec.scheduling_policy.priority_class_name = "high";
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty());
  Class("high", 7);
  const Json spec = SpecOfWorkload();
  EXPECT_EQ(spec["priority"], 7);
  EXPECT_EQ(spec["priorityClassRef"],
            *ParseJson(R"({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"})"));
  EXPECT_EQ(spec["podSets"][0]["template"]["spec"]["priorityClassName"], "high") << "as its pods have it";
}

// The API server's rules for Workloads: a change that it would reject is not tried.
TEST_F(KueueTest, FollowsTheLabelAsFarAsItMayOnceItQueues) {
  const struct {
    const char* name;
    const char* before;  // kind of the Workload's class
    bool is_reserved;
    const char* after;
    bool is_followed;
  } cases[] = {
      {"another of Kueue's", "WorkloadPriorityClass", false, "WorkloadPriorityClass", true},
      {"another of Kueue's while it runs", "WorkloadPriorityClass", true, "WorkloadPriorityClass", true},
      {"the first", "", false, "WorkloadPriorityClass", true},
      {"the first while it runs", "", true, "WorkloadPriorityClass", false},
      {"no more", "WorkloadPriorityClass", false, "", true},
      {"no more while it runs", "WorkloadPriorityClass", true, "", false},
      {"of its pods while it runs", "PriorityClass", true, "WorkloadPriorityClass", false},
      {"another default", "PriorityClass", false, "PriorityClass", false},
  };
  for (const auto& test : cases) {
    observed().job.metadata.labels.clear();
    observed().priority_class.reset();
    Queue();
    if (*test.before != '\0') {
      workload()["spec"]["priorityClassRef"] = {
          {"group", std::string(test.before) == "PriorityClass" ? "scheduling.k8s.io" : "kueue.x-k8s.io"},
          {"kind", test.before},
          {"name", "before"}};
      workload()["spec"]["priority"] = 1;
    }
    if (test.is_reserved) Say("QuotaReserved", "True");
    if (*test.after != '\0') Class("after", 2);
    if (std::string(test.after) == "WorkloadPriorityClass") Label("after");
    EXPECT_EQ(ActionsOf(Pass()).size(), test.is_followed ? 1 : 0) << test.name;
    const Json spec = SpecOfWorkload();
    const bool is_gone = test.is_followed && *test.after == '\0';
    EXPECT_EQ(spec.contains("priority"), !is_gone && (test.is_followed || *test.before != '\0')) << test.name;
    if (spec.contains("priority")) {
      EXPECT_EQ(spec["priority"], test.is_followed ? 2 : 1) << test.name;
    }
  }
}

TEST_F(KueueTest, KeepsThePriorityWithWhichItQueued) {
  Label("urgent");
  Class("urgent", 100);
  Queue();
  Class("urgent", 50);
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty()) << "the value of a class counts when the Workload is made";
  observed().priority_class.reset();
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty()) << "nor does it stop for the class that is gone";
  observed().job.spec.suspend = true;
  EXPECT_EQ(SpecOfWorkload()["priority"], 100);
}

TEST_F(KueueTest, AsksForItsPlaceInTheTopologyByTheAnnotationsOfItsTemplate) {
  const struct {
    const char* annotations;
    const char* request;
  } cases[] = {
      {R"({"kueue.x-k8s.io/podset-required-topology": "rack"})", R"({"required": "rack"})"},
      {R"({"kueue.x-k8s.io/podset-preferred-topology": "block"})", R"({"preferred": "block"})"},
      {R"({"kueue.x-k8s.io/podset-unconstrained-topology": "true"})", R"({"unconstrained": true})"},
      {R"({"kueue.x-k8s.io/podset-required-topology": "block", "kueue.x-k8s.io/podset-slice-size": "2",
           "kueue.x-k8s.io/podset-slice-required-topology": "rack"})",
       R"({"required": "block", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2})"},
  };
  for (const auto& test : cases) {
    observed().job.spec.worker.pod_template["metadata"]["annotations"] = *ParseJson(test.annotations);
    Json expected = *ParseJson(test.request);
    expected["podIndexLabel"] = "lockstep.dev/slot";
    EXPECT_EQ(SpecOfWorkload()["podSets"][0]["topologyRequest"], expected) << test.annotations;
  }
}

TEST_F(KueueTest, PodsOfATopologyWaitAtKueuesGate) {
  const std::string assignment =
      R"({"name": "main", "flavors": {"cpu": "spot"}, "count": 2, "topologyAssignment": {"levels": ["rack"]}})";
  Admit(assignment);
  const Json implied = PodOf(Pass());
  EXPECT_EQ(implied["spec"]["schedulingGates"], *ParseJson(R"([{"name": "kueue.x-k8s.io/topology"}])"));
  EXPECT_EQ(implied["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"], "true")
      << "the flavor has a topology, the job asked for nothing";
  observed()
      .job.spec.worker.pod_template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] =
      "rack";
  Admit(assignment);
  const Json asked = PodOf(Pass());
  EXPECT_TRUE(asked["spec"].contains("schedulingGates"));
  EXPECT_FALSE(asked["metadata"]["annotations"].contains("kueue.x-k8s.io/podset-unconstrained-topology"));
}

TEST_F(KueueTest, ReportsOnceThatAllPodsAreReady) {
  Admit();
  world_.Running(0);
  EXPECT_EQ(PatchOf(Pass()), nullptr) << "one is missing";
  world_.Running(1);
  const Plan plan = Pass();
  const PatchStatus* patch = PatchOf(plan);
  ASSERT_NE(patch, nullptr);
  EXPECT_EQ(Of(*patch, "PodsReady"), "True Started");
  EXPECT_EQ(Of(*patch, "Admitted"), "True Why") << "what Kueue wrote stays";
  EXPECT_EQ(patch->resource_version, "7");
  Say("PodsReady", "True");
  EXPECT_EQ(PatchOf(Pass()), nullptr);
}

TEST_F(KueueTest, AnEvictedJobStopsThenGivesItsQuotaBack) {
  Admit();
  world_.Running(0).Running(1);
  Say("PodsReady", "True");
  Say("Evicted", "True", "Preempted", "for a better one");
  Plan plan = Pass();
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1", "delete job-worker-0"));
  EXPECT_EQ(ConditionOf(plan, condition::kSuspended).reason, "Evicted");
  EXPECT_EQ(ConditionOf(plan, condition::kSuspended).message, "for a better one");
  observed().pods.clear();
  plan = Pass();
  const PatchStatus* patch = PatchOf(plan);
  ASSERT_NE(patch, nullptr);
  EXPECT_TRUE(patch->status["admission"].is_null());
  EXPECT_EQ(Of(*patch, "QuotaReserved"), "False Pending");
  EXPECT_EQ(Of(*patch, "Admitted"), "False NoReservation");
  EXPECT_EQ(Of(*patch, "Requeued"), "True Preempted");
  EXPECT_EQ(Of(*patch, "PodsReady"), "False WaitForStart");
  Say("QuotaReserved", "False");
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty()) << "once";
}

TEST_F(KueueTest, AJobIsEvictedWhateverItsSpecHasBecome) {
  Admit();
  world_.Running(0);
  observed().job.status.observed_generation = 1;
  observed().violations = {"spec.worker: is wrong"};
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty()) << "it holds what it has";
  Say("Evicted", "True", "Preempted");
  EXPECT_THAT(ActionsOf(Pass()), ElementsAre("delete job-worker-0"));
  observed().pods.clear();
  EXPECT_NE(PatchOf(Pass()), nullptr);
}

TEST_F(KueueTest, OnlyPreemptedJobsQueueAtOnce) {
  Admit();
  Say("Evicted", "True", "PodsReadyTimeout", "slow");
  const Plan plan = Pass();
  EXPECT_EQ(Of(*PatchOf(plan), "Requeued"), "False PodsReadyTimeout") << "Kueue has a time for it";
}

TEST_F(KueueTest, FollowsSuspendAndLeavesWhatOthersEnded) {
  Admit();
  observed().job.spec.suspend = true;
  const Plan plan = Pass();
  ASSERT_THAT(ActionsOf(plan), ElementsAre("apply Workload"));
  EXPECT_EQ(std::get<ApplyObject>(plan.actions[0].action).object["spec"]["active"], false);
  EXPECT_EQ(std::get<ApplyObject>(plan.actions[0].action).object["metadata"]["resourceVersion"], "7")
      << "what others wrote since then must not be undone";
  EXPECT_EQ(ConditionOf(plan, condition::kSuspended).reason, "SuspendRequested");
  Queue();
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty());
  observed().job.spec.suspend = false;
  EXPECT_THAT(ActionsOf(Pass()), ElementsAre("apply Workload"));
  Queue();
  workload()["spec"]["active"] = false;  // by an administrator
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty());
}

TEST_F(KueueTest, AChangedJobStopsAndQueuesAgain) {
  Admit();
  world_.Running(0).Running(1);
  Say("PodsReady", "True");
  observed().job.spec.worker.replicas = 3;
  EXPECT_THAT(ActionsOf(Pass()), ElementsAre("delete job-worker-1", "delete job-worker-0"));
  observed().pods.clear();
  EXPECT_THAT(ActionsOf(Pass()), ElementsAre("delete Workload"));
  observed().owned.erase(kKey);
  EXPECT_THAT(ActionsOf(Pass()), ElementsAre("apply Workload"));
}

TEST_F(KueueTest, SaysHowTheJobEnded) {
  const struct {
    std::string_view type;
    const char* reported;
  } cases[] = {{condition::kComplete, "True Succeeded"}, {condition::kFailed, "True Failed"}};
  for (const auto& test : cases) {
    Admit();
    observed().job.status.conditions.clear();
    api::SetCondition(observed().job.status.conditions, {test.type, api::ConditionStatus::kTrue, "End", "so"},
                      1, observed().now);
    const Plan plan = MakePlan(observed());
    ASSERT_NE(PatchOf(plan), nullptr) << test.type;
    EXPECT_EQ(Of(*PatchOf(plan), "Finished"), test.reported);
    Say("Finished", "True");
    EXPECT_THAT(ActionsOf(MakePlan(observed())), IsEmpty()) << "once";
  }
}

TEST_F(KueueTest, KeepsItsQuotaAsLongAsAPodRuns) {
  Admit();
  world_.Running(0);
  api::SetCondition(observed().job.status.conditions,
                    {condition::kFailed, api::ConditionStatus::kTrue, "End", "so"}, 1, observed().now);
  EXPECT_EQ(PatchOf(MakePlan(observed())), nullptr);
}

TEST_F(KueueTest, WithoutAQueueItsWorkloadIsDeleted) {
  Admit();
  observed().job.spec.scheduling_policy.queue_name.clear();
  EXPECT_THAT(ActionsOf(Pass()), Contains("delete Workload"));
}

TEST_F(KueueTest, SaysThatThereIsNoKueue) {
  observed().served.clear();
  const Plan plan = Pass();
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(ConditionOf(plan, condition::kStalled).reason, "QueueUnavailable");
}

TEST_F(KueueTest, StopsNoPodWhenTheStateOfKueueIsUnknown) {
  Admit();
  world_.Running(0).Running(1);
  Say("PodsReady", "True");
  observed().flavors.clear();
  const Plan plan = Pass();
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(ConditionOf(plan, condition::kStalled).reason, "QueueUnavailable");
  EXPECT_NE(plan.rendezvous, std::nullopt) << "they train on";
  observed().served.clear();
  EXPECT_THAT(ActionsOf(Pass()), IsEmpty());
}

}  // namespace
}  // namespace lockstep::reconcile

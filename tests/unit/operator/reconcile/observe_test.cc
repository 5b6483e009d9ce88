#include "operator/reconcile/observe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/base/time_text.h"
#include "runtime/common/protocol/last_report.h"
#include "tests/support/fake_clock.h"

namespace lockstep::reconcile {
namespace {

Json NodeJson(const std::string& name, const std::string& ready) {
  return {{"metadata", {{"name", name}, {"resourceVersion", "5"}}},
          {"status", {{"conditions", Json::array({{{"type", "Ready"}, {"status", ready}}})}}}};
}

class ObserveTest : public ::testing::Test {
 protected:
  ObserveTest() {
    caches_.jobs.Put(*ParseJson(R"({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
      "metadata": {"name": "job", "namespace": "team", "uid": "j", "resourceVersion": "1"},
      "spec": {"worker": {"template": {"spec": {"containers": [{"name": "trainer"}]}}}}})"));
    caches_.pods.Put(*ParseJson(R"({"metadata": {"name": "job-worker-0", "namespace": "team", "uid": "p",
      "resourceVersion": "2", "ownerReferences": [{"apiVersion": "lockstep.dev/v1alpha1",
        "kind": "DistributedTrainingJob", "name": "job", "uid": "j", "controller": true}]},
      "spec": {"nodeName": "a"}})"));
  }
  // A foreign object with the labels and the owner's uid of the job's own objects, modified by `changes`.
  Json Forged(const char* uid, const char* name_space, const Json& changes) {
    Json object = *caches_.pods.Get({"team", "job-worker-0"});
    object["metadata"].update({{"uid", uid}, {"name", uid}, {"namespace", name_space}});
    object["metadata"]["resourceVersion"] = "3";
    object["metadata"]["ownerReferences"][0].update(changes);
    return object;
  }
  Observed Now(const ClusterSettings& settings = {}) {
    return *Observe({"team", "job"}, caches_, rendezvous_, settings, clock_.Now());
  }

  testing::FakeClock clock_;
  Caches caches_;
  rendezvous::RendezvousService rendezvous_{clock_, [](const auto&, auto done) { done({}); },
                                            [](const protocol::JobIdentity&) {}};
};

TEST_F(ObserveTest, TakesNothingForTheJobsThatOnlyHasItsUid) {
  const Json forged[] = {
      Forged("1", "aaa", Json::object()),          Forged("2", "zzz", Json::object()),
      Forged("3", "team", {{"kind", "Job"}}),      Forged("4", "team", {{"apiVersion", "lockstep.dev/v9"}}),
      Forged("5", "team", {{"name", "other"}}),    Forged("6", "team", {{"uid", "older"}}),
      Forged("7", "team", {{"controller", false}})};
  for (const Json& object : forged) {
    caches_.pods.Put(object);
    for (auto& [kind, store] : caches_.owned) store.Put(object);
  }
  const Observed observed = Now();
  ASSERT_EQ(observed.pods.size(), 1U);
  EXPECT_EQ(observed.pods[0].uid, "p");
  EXPECT_TRUE(observed.owned.empty());

  Json own = forged[0];
  own["metadata"]["namespace"] = "team";
  caches_.owned.at("services.v1").Put(own);
  EXPECT_EQ(Now().owned.at("services.v1")["metadata"]["uid"], "1");
}

TEST_F(ObserveTest, TheCacheFindsThePodsOfANode) {
  Json waiting = *caches_.pods.Get({"team", "job-worker-0"});
  waiting["metadata"].update({{"name", "job-worker-1"}, {"uid", "q"}, {"resourceVersion", "3"}});
  waiting["spec"].erase("nodeName");
  caches_.pods.Put(waiting);
  ASSERT_EQ(caches_.pods.ByIndex(IndexOfNode("a")).size(), 1U);
  EXPECT_EQ(kube::UidOf(*caches_.pods.ByIndex(IndexOfNode("a"))[0]), "p");
  EXPECT_TRUE(caches_.pods.ByIndex(IndexOfNode("b")).empty());
  waiting["metadata"]["resourceVersion"] = "4";
  waiting["spec"]["nodeName"] = "a";
  caches_.pods.Put(waiting);
  EXPECT_EQ(caches_.pods.ByIndex(IndexOfNode("a")).size(), 2U);
}

TEST_F(ObserveTest, SeesTheNodesOfItsPods) {
  caches_.nodes.ReplaceAll({NodeJson("a", "Unknown"), NodeJson("b", "True")}, "5");
  const Observed observed = Now();
  ASSERT_TRUE(observed.nodes.has_value());
  ASSERT_EQ(observed.nodes->size(), 1U);
  EXPECT_TRUE(IsLost(observed.nodes->at("a")));
}

TEST_F(ObserveTest, HasNoNodesWithoutPermissionToReadThem) { EXPECT_FALSE(Now().nodes.has_value()); }

TEST_F(ObserveTest, TreatsNodesAsUnknownWhenNoneAnswers) {
  caches_.nodes.ReplaceAll({NodeJson("a", "Unknown"), NodeJson("b", "Unknown")}, "5");
  EXPECT_FALSE(Now().nodes.has_value());
}

TEST_F(ObserveTest, DistinguishesARemovedNodeFromAnUnknownOne) {
  caches_.nodes.ReplaceAll({NodeJson("b", "True")}, "5");
  const Observed observed = Now();
  ASSERT_TRUE(observed.nodes.has_value());
  EXPECT_TRUE(observed.nodes->empty());
}

// No operator received heartbeats of the job.
TEST_F(ObserveTest, ReadsTheEndOfAJobFromTheLastReportsOfItsPods) {
  const protocol::JobIdentity job{"team", "job", "j"};
  protocol::Heartbeat report{.job = job,
                             .member = {.pod = "job-worker-0", .pod_uid = "p"},
                             .progress = {.round = 4, .step = 480, .total_steps = 480},
                             .checkpoint = {.step = 480, .uri = "s3://bucket/step-480", .stall_seconds = 1},
                             .evaluation = {.step = 480, .accuracy = 0.9},
                             .damaged_checkpoints = {{400, "cut short"}},
                             .repairs = {{.formation = 4,
                                          .reason = "rank process 0 was killed",
                                          .failure = {.ranks = {1}, .exit_code = 137},
                                          .seconds = 3}}};
  Json pod = *caches_.pods.Get({"team", "job-worker-0"});
  int version = 10;
  const auto end_with = [&](int exit_code, const std::string& message) {
    pod["metadata"]["resourceVersion"] = std::to_string(++version);
    pod["status"]["containerStatuses"] = Json::array(
        {{{"name", "trainer"},
          {"state",
           {{"terminated",
             {{"exitCode", exit_code}, {"finishedAt", "2026-01-02T03:04:05Z"}, {"message", message}}}}}}});
    caches_.pods.Put(pod);
    return Now().rendezvous;
  };
  const rendezvous::RendezvousView view = end_with(0, protocol::EncodeLastReport(report));
  EXPECT_TRUE(view.completed);
  EXPECT_EQ(view.progress.step, 480);
  EXPECT_EQ(view.checkpoint.uri, "s3://bucket/step-480");
  EXPECT_EQ(view.saves.size(), 1U);
  EXPECT_EQ(view.evaluation.accuracy, 0.9);
  EXPECT_EQ(view.damaged_checkpoints.size(), 1U);
  ASSERT_EQ(view.changes.size(), 1U);
  EXPECT_EQ(view.changes[0].recovery_seconds, 3);
  EXPECT_EQ(view.changes[0].departures.at(0).pod, "job-worker-0");
  EXPECT_EQ(view.last_progress_time, *ParseTime("2026-01-02T03:04:05Z"));

  EXPECT_FALSE(end_with(1, protocol::EncodeLastReport(report)).completed) << "it failed";
  EXPECT_FALSE(end_with(0, "accuracy 0.9").completed) << "of the user's own";
  report.job.uid = "another";
  EXPECT_FALSE(end_with(0, protocol::EncodeLastReport(report)).completed) << "of another job";
  report.job = job;
  report.member.pod_uid = "another";
  EXPECT_FALSE(end_with(0, protocol::EncodeLastReport(report)).completed) << "of another pod";
}

TEST_F(ObserveTest, RefusesProgramsWhereNoImageBringsWhatRunsThem) {
  const auto refused =
      ::testing::Contains("spec.training: is required, for this operator runs without --launcher-image");
  EXPECT_THAT(Now().violations, refused);
  EXPECT_THAT(Now({.launcher_image = "lockstep"}).violations, ::testing::Not(refused));
}

TEST_F(ObserveTest, DistinguishesAnUnknownFieldFromAViolatedRule) {
  Json job = *caches_.jobs.Get({"team", "job"});
  job["metadata"]["resourceVersion"] = "2";
  job["spec"]["elasticPolicy"] = {{"minReplicas", 2}, {"maxReplicas", 1}};
  caches_.jobs.Put(job);
  EXPECT_TRUE(Now().unreadable.empty());
  EXPECT_THAT(Now().violations, ::testing::Contains(::testing::HasSubstr("minReplicas")));
  job["metadata"]["resourceVersion"] = "3";
  job["spec"]["worker"]["newField"] = 1;
  caches_.jobs.Put(job);
  EXPECT_EQ(Now().unreadable, std::vector<std::string>{"spec.worker.newField: unknown field"});
  EXPECT_TRUE(Now().violations.empty());
}

Json ClassJson(const std::string& name, int32_t value, bool is_default = false) {
  return {{"metadata", {{"name", name}, {"resourceVersion", "5"}}},
          {"value", value},
          {"globalDefault", is_default}};
}

TEST_F(ObserveTest, FindsThePriorityClassOfAJobThatQueues) {
  const struct {
    const char* name;
    const char* labels;
    const char* policy;
    std::optional<int32_t> value;
  } cases[] = {
      {"does not queue", R"({"kueue.x-k8s.io/priority-class": "high"})", "{}", {}},
      {"the label first", R"({"kueue.x-k8s.io/priority-class": "high"})",
       R"({"queueName": "q", "priorityClassName": "high"})", 100},
      {"of the pods", "{}", R"({"queueName": "q", "priorityClassName": "high"})", 7},
      {"not there", "{}", R"({"queueName": "q", "priorityClassName": "higher"})", {}},
      {"the label's is not there",
       R"({"kueue.x-k8s.io/priority-class": "other"})",
       R"({"queueName": "q"})",
       {}},
      {"the lowest default", "{}", R"({"queueName": "q"})", 1},
  };
  caches_.workload_priority_classes.ReplaceAll({ClassJson("high", 100)}, "5");
  caches_.priority_classes.ReplaceAll(
      {ClassJson("high", 7), ClassJson("usual", 2, true), ClassJson("poor", 1, true), ClassJson("none", 0)},
      "5");
  int version = 1;
  for (const auto& test : cases) {
    Json job = *caches_.jobs.Get({"team", "job"});
    job["metadata"]["labels"] = *ParseJson(test.labels);
    job["spec"]["schedulingPolicy"] = *ParseJson(test.policy);
    job["metadata"]["resourceVersion"] = std::to_string(++version);
    caches_.jobs.Put(job);
    const auto found = Now().priority_class;
    EXPECT_EQ(found.has_value(), test.value.has_value()) << test.name;
    if (found && test.value) {
      EXPECT_EQ((*found)["value"], *test.value) << test.name;
    }
  }
}

}  // namespace
}  // namespace lockstep::reconcile

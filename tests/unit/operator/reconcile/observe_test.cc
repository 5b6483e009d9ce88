#include "operator/reconcile/observe.h"

#include <gtest/gtest.h>

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
    caches_.jobs.Put(
        *ParseJson(R"({"metadata": {"name": "job", "namespace": "team", "uid": "j", "resourceVersion": "1"},
      "spec": {"worker": {"template": {"spec": {"containers": [{"name": "trainer"}]}}}}})"));
    caches_.pods.Put(*ParseJson(R"({"metadata": {"name": "job-worker-0", "namespace": "team", "uid": "p",
      "resourceVersion": "2", "ownerReferences": [{"uid": "j", "controller": true}]}, "spec": {"nodeName": "a"}})"));
  }
  Observed Now(const ClusterSettings& settings = {}) {
    return *Observe({"team", "job"}, caches_, rendezvous_, settings, clock_.Now());
  }

  testing::FakeClock clock_;
  Caches caches_;
  rendezvous::RendezvousService rendezvous_{clock_, [](const auto&, auto done) { done({}); },
                                            [](const protocol::JobIdentity&) {}};
};

TEST_F(ObserveTest, SeesTheNodesOfItsPods) {
  caches_.nodes.ReplaceAll({NodeJson("a", "Unknown"), NodeJson("b", "True")}, "5");
  const Observed observed = Now();
  ASSERT_TRUE(observed.nodes.has_value());
  ASSERT_EQ(observed.nodes->size(), 1U);
  EXPECT_TRUE(IsLost(observed.nodes->at("a")));
}

TEST_F(ObserveTest, KnowsNothingOfNodesThatItMayNotRead) { EXPECT_FALSE(Now().nodes.has_value()); }

TEST_F(ObserveTest, TrustsNobodyWhereNoNodeAnswers) {
  caches_.nodes.ReplaceAll({NodeJson("a", "Unknown"), NodeJson("b", "Unknown")}, "5");
  EXPECT_FALSE(Now().nodes.has_value());
}

TEST_F(ObserveTest, TellsANodeThatWasRemovedFromOneThatIsUnknown) {
  caches_.nodes.ReplaceAll({NodeJson("b", "True")}, "5");
  const Observed observed = Now();
  ASSERT_TRUE(observed.nodes.has_value());
  EXPECT_TRUE(observed.nodes->empty());
}

TEST_F(ObserveTest, RefusesProgramsWhereNoImageBringsWhatRunsThem) {
  EXPECT_EQ(Now().unsupported,
            std::vector<std::string>{
                "spec.training: is required, for this operator runs without --launcher-image"});
  EXPECT_TRUE(Now({.launcher_image = "lockstep"}).unsupported.empty());
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

#include "operator/reconcile/job_reconciler.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"

namespace lockstep::reconcile {
namespace {

class GoneJobs final : public JobObserver {
 public:
  void OnJob(const api::TrainingJob&, const api::TrainingJobStatus&, const GpuCount&,
             const rendezvous::RendezvousView&) override {}
  void OnJobGone(const protocol::JobIdentity& job) override { uids.push_back(job.uid); }
  std::vector<std::string> uids;
};

class JobReconcilerTest : public ::testing::Test {
 protected:
  testing::FakeKube kube_;
  testing::FakeClock clock_;
  Caches caches_;
  GoneJobs observer_;
  testing::FakeKube events_kube_;  // apart: events are written by another thread, at any time
  kube::EventRecorder events_{events_kube_, clock_, "operator"};
  rendezvous::RendezvousService rendezvous_{clock_, [](const rendezvous::Claim&, auto done) { done({}); },
                                            [](const protocol::JobIdentity&) {}};
  JobReconciler reconciler_{{kube_, caches_, rendezvous_, events_, observer_, clock_},
                            [] { return ClusterSettings{}; }};
};

TEST_F(JobReconcilerTest, TakesOverAJobWhoseInstallationNoLongerRenewsItsLease) {
  JobReconciler heir({kube_, caches_, rendezvous_, events_, observer_, clock_},
                     [] { return ClusterSettings{.installation = "system/heir", .takes_over = true}; });
  const auto holder = [this] {
    const auto job = kube_.Get(kJobs, {"team", "job"});
    return StringAt(*job, {"metadata", "annotations", std::string(api::kAnnotationInstallation)});
  };
  caches_.jobs.Put(*kube_.Create(kJobs, *ParseJson(R"({"apiVersion": "lockstep.dev/v1alpha1",
    "kind": "DistributedTrainingJob", "metadata": {"name": "job", "namespace": "team", "generation": 1,
      "annotations": {"lockstep.dev/installation": "gone/lockstep-leader"}}, "spec": {"worker": {"replicas": 1,
    "template": {"spec": {"containers": [{"name": "trainer", "image": "w"}]}}},
    "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 10}}})")));
  (void)*kube_.Create(kube::kLeases,
                      *ParseJson(R"({"metadata": {"name": "lockstep-leader", "namespace": "gone"},
    "spec": {"holderIdentity": "pod_1f2e", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}})"));
  for (int pass = 0; pass < 10; ++pass) {
    const auto outcome = heir.Reconcile("team/job");
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->requeue_after, Claims::kPeriod);
    EXPECT_EQ(holder(), "gone/lockstep-leader");
    clock_.Advance(Claims::kPeriod);
  }
  (void)heir.Reconcile("team/job");
  EXPECT_EQ(holder(), "system/heir");
}

TEST(JobReconciler, ReportsTheEndOfAJobWhoseNamespaceIsNoLongerOurs) {
  testing::FakeKube kube;
  testing::FakeClock clock;
  Caches caches;
  GoneJobs observer;
  testing::FakeKube events_kube;  // apart: events are written by another thread, at any time
  kube::EventRecorder events(events_kube, clock, "operator");
  rendezvous::RendezvousService rendezvous(
      clock, [](const rendezvous::Claim&, auto done) { done({}); }, [](const protocol::JobIdentity&) {});
  JobReconciler reconciler({kube, caches, rendezvous, events, observer, clock},
                           [] { return ClusterSettings{.selects_namespaces = true}; });
  const Json job = *kube.Create(kJobs, *ParseJson(R"({"metadata": {"name": "job", "namespace": "team"},
    "spec": {"suspend": true, "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "w"}]}}}}})"));
  caches.jobs.Put(job);
  const Json team = {{"metadata", {{"name", "team"}, {"resourceVersion", "1"}}}};
  (void)reconciler.Reconcile("team/job");
  EXPECT_EQ(kube.writes().size(), 1U) << "nothing but the creation of the job: the namespace is not ours";
  caches.name_spaces.Put(team);
  (void)reconciler.Reconcile("team/job");
  const std::size_t writes = kube.writes().size();
  EXPECT_GT(writes, 1U);
  EXPECT_TRUE(observer.uids.empty());
  caches.name_spaces.Remove(team);
  (void)reconciler.Reconcile("team/job");
  EXPECT_EQ(observer.uids, std::vector<std::string>{kube::UidOf(job)});
  EXPECT_EQ(kube.writes().size(), writes);
}

// The job is deleted and created again between two passes: the reconciler observes only another uid.
TEST_F(JobReconcilerTest, ReportsTheEndOfAJobThatAnotherOfItsNameReplaced) {
  const Json manifest =
      *ParseJson(R"({"metadata": {"name": "job", "namespace": "team"}, "spec": {"suspend": true,
    "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "worker"}]}}}}})");
  std::vector<std::string> uids;
  for (int i = 0; i < 2; ++i) {
    Json job = *kube_.Create(kJobs, manifest);
    uids.push_back(kube::UidOf(job));
    caches_.jobs.Put(std::move(job));
    (void)reconciler_.Reconcile("team/job");
    job = *kube_.Get(kJobs, {"team", "job"});
    job["metadata"].erase("finalizers");
    ASSERT_TRUE(kube_.Replace(kJobs, job).ok());
    ASSERT_TRUE(kube_.Delete(kJobs, {"team", "job"}, {.grace_seconds = 0}).ok());
  }
  EXPECT_EQ(observer_.uids, std::vector<std::string>{uids[0]});
}

TEST_F(JobReconcilerTest, AJobThatHasYetToStartWaitsForThoseThatRun) {
  EXPECT_EQ(reconciler_.PriorityOf("team/job"), controller::Priority::kNormal) << "it is gone";
  Json job = *ParseJson(R"({"metadata": {"name": "job", "namespace": "team", "resourceVersion": "1"}})");
  caches_.jobs.Put(job);
  EXPECT_EQ(reconciler_.PriorityOf("team/job"), controller::Priority::kLow);
  job["metadata"]["resourceVersion"] = "2";
  job["status"]["conditions"] = *ParseJson(R"([{"type": "Initialized", "status": "False"}])");
  caches_.jobs.Put(job);
  EXPECT_EQ(reconciler_.PriorityOf("team/job"), controller::Priority::kLow);
  job["metadata"]["resourceVersion"] = "3";
  job["status"]["conditions"][0]["status"] = "True";
  caches_.jobs.Put(job);
  EXPECT_EQ(reconciler_.PriorityOf("team/job"), controller::Priority::kNormal);
}

}  // namespace
}  // namespace lockstep::reconcile

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

// Deleted and made again between two passes: the reconciler sees only another uid.
TEST(JobReconciler, ReportsTheEndOfAJobThatAnotherOfItsNameReplaced) {
  testing::FakeKube kube;
  testing::FakeClock clock;
  Caches caches;
  GoneJobs observer;
  kube::EventRecorder events(kube, clock, "operator");
  rendezvous::RendezvousService rendezvous(
      clock, [](const rendezvous::Claim&, auto done) { done({}); }, [](const protocol::JobIdentity&) {});
  JobReconciler reconciler({kube, caches, rendezvous, events, observer, clock}, {});
  const Json manifest =
      *ParseJson(R"({"metadata": {"name": "job", "namespace": "team"}, "spec": {"suspend": true,
    "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "worker"}]}}}}})");
  std::vector<std::string> uids;
  for (int i = 0; i < 2; ++i) {
    Json job = *kube.Create(kJobs, manifest);
    uids.push_back(kube::UidOf(job));
    caches.jobs.Put(std::move(job));
    (void)reconciler.Reconcile("team/job");
    job = *kube.Get(kJobs, {"team", "job"});
    job["metadata"].erase("finalizers");
    ASSERT_TRUE(kube.Replace(kJobs, job).ok());
    ASSERT_TRUE(kube.Delete(kJobs, {"team", "job"}, {.grace_seconds = 0}).ok());
  }
  EXPECT_EQ(observer.uids, std::vector<std::string>{uids[0]});
}

}  // namespace
}  // namespace lockstep::reconcile

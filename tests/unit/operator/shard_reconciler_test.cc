#include "operator/shard_reconciler.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"

namespace lockstep {
namespace {

class Observed final : public reconcile::JobObserver {
 public:
  void OnJob(const api::TrainingJob& job, const api::TrainingJobStatus&, const reconcile::GpuCount&,
             const rendezvous::RendezvousView&) override {
    seen.push_back(job.metadata.uid);
  }
  void OnJobGone(const protocol::JobIdentity& job) override { gone.push_back(job.uid); }
  std::vector<std::string> seen;
  std::vector<std::string> gone;
};

class ShardReconcilerTest : public ::testing::Test {
 protected:
  // Returns its uid.
  std::string Create() {
    Json job =
        *kube_.Create(reconcile::kJobs, *ParseJson(R"({"metadata": {"name": "job", "namespace": "team"},
      "spec": {"suspend": true, "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "w"}]}}}}})"));
    const std::string uid = kube::UidOf(job);
    caches_.jobs.Put(std::move(job));
    return uid;
  }
  static sharding::ShardSet ShardOf(const std::string& uid) {
    return sharding::ShardSet().set(sharding::ShardOf(uid));
  }
  // Reconciles like the controller, until nothing is left to write.
  void Reconcile() {
    for (int i = 0; i < 3; ++i) (void)reconciler_.Reconcile("team/job");
  }

  testing::FakeKube kube_;
  testing::FakeClock clock_;
  reconcile::Caches caches_;
  Observed observer_;
  testing::FakeKube events_kube_;  // apart: events are written by another thread, at any time
  kube::EventRecorder events_{events_kube_, clock_, "operator"};
  rendezvous::RendezvousService rendezvous_{clock_, [](const rendezvous::Claim&, auto done) { done({}); },
                                            [](const protocol::JobIdentity&) {}};
  reconcile::JobReconciler jobs_{{kube_, caches_, rendezvous_, events_, observer_, clock_},
                                 [] { return reconcile::ClusterSettings{}; }};
  sharding::ShardGate gate_;
  ShardReconciler reconciler_{jobs_, caches_.jobs, gate_};
};

TEST_F(ShardReconcilerTest, WorksOnJobsOfOpenShardsOnly) {
  const std::string uid = Create();
  gate_.Open(~ShardOf(uid));
  EXPECT_FALSE(reconciler_.IsOurs("team/job"));
  Reconcile();
  EXPECT_EQ(kube_.writes().size(), 1U) << "its creation";
  gate_.Open(ShardOf(uid));
  EXPECT_TRUE(reconciler_.IsOurs("team/job"));
  Reconcile();
  EXPECT_GT(kube_.writes().size(), 1U);
  EXPECT_FALSE(observer_.seen.empty());
}

TEST_F(ShardReconcilerTest, ForgetsTheJobsOfShardsThatWereHandedOver) {
  const std::string uid = Create();
  gate_.Open(sharding::ShardSet().set());
  Reconcile();
  reconciler_.Forget(~ShardOf(uid));
  EXPECT_TRUE(observer_.gone.empty());
  reconciler_.Forget(ShardOf(uid));
  EXPECT_EQ(observer_.gone, std::vector<std::string>{uid});
}

TEST_F(ShardReconcilerTest, ForgetsAJobWhoseNameOneOfAnotherShardBears) {
  const std::string former = Create();
  gate_.Open(ShardOf(former));
  Reconcile();
  std::string next = former;
  while (sharding::ShardOf(next) == sharding::ShardOf(former)) {
    Json job = *kube_.Get(reconcile::kJobs, {"team", "job"});
    job["metadata"].erase("finalizers");
    ASSERT_TRUE(kube_.Replace(reconcile::kJobs, job).ok());
    ASSERT_TRUE(kube_.Delete(reconcile::kJobs, {"team", "job"}, {.grace_seconds = 0}).ok());
    next = Create();
  }
  EXPECT_TRUE(reconciler_.IsOurs("team/job")) << "to be forgotten";
  Reconcile();
  EXPECT_EQ(observer_.gone, std::vector<std::string>{former});
  EXPECT_FALSE(reconciler_.IsOurs("team/job"));
}

}  // namespace
}  // namespace lockstep

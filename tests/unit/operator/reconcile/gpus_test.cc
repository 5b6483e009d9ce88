#include "operator/reconcile/gpus.h"

#include <gtest/gtest.h>

#include "operator/reconcile/kueue_workload.h"
#include "operator/reconcile/plan.h"
#include "tests/support/job_world.h"

namespace lockstep::reconcile {
namespace {

using testing::JobWorld;

// A job of four pods with eight GPUs each; the pod of slot 3 does not exist yet.
class GpusTest : public ::testing::Test {
 protected:
  GpusTest() {
    world_.Replicas(4).Running(0).Running(1).Pending(2);
    for (Pod& pod : observed().pods) pod.gpus = 8;
    spec().worker.pod_template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 8;
  }
  Observed& observed() { return world_.observed(); }
  api::TrainingJobSpec& spec() { return observed().job.spec; }
  void Expect(int held, int waiting, const char* why) {
    const GpuCount count = MakePlan(observed()).gpus;
    EXPECT_EQ(count.held, held) << why;
    EXPECT_EQ(count.waiting, waiting) << why;
  }
  JobWorld world_;
};

TEST_F(GpusTest, AreHeldByPodsWithANodeAndWaitedForByTheOthers) {
  Expect(16, 16, "one pod has no node, one is not there yet");
  observed().pods[2].node = "n";
  Expect(24, 8, "it has a node, though its container does not run yet");
  observed().pods[1].phase = PodPhase::kFailed;
  Expect(16, 16, "another will take its place");
  observed().pods[0].deleting = true;
  Expect(16, 16, "until it has ended");
}

TEST_F(GpusTest, OfAPodAreThoseThatItHas) {
  spec().worker.pod_template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1;
  Expect(16, 2, "pods of an older template");
}

TEST_F(GpusTest, AreWaitedForInAQueue) {
  spec().scheduling_policy.queue_name = "research";
  observed().served = {KeyOfKind(kWorkloads)};
  observed().pods.clear();
  Expect(0, 32, "not admitted");
}

TEST_F(GpusTest, OfSlotsThatWereGivenUpAreNotWaitedFor) {
  world_.Elastic(1, 4);
  observed().job.status.observed_generation = 1;
  observed().job.status.given_up_slots = {3};
  Expect(16, 8, "slot 3");
}

TEST_F(GpusTest, AreNotWaitedForWhereNoPodIsWanted) {
  spec().suspend = true;
  Expect(16, 0, "suspended, while its pods leave");
  spec().suspend = false;
  observed().rendezvous.completed = true;
  Expect(16, 0, "training is over");
  observed().rendezvous.completed = false;
  observed().job.metadata.deletion_timestamp = observed().now;
  Expect(16, 0, "deleted");
}

}  // namespace
}  // namespace lockstep::reconcile

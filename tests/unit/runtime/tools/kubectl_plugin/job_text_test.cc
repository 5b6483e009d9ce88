#include "runtime/tools/kubectl_plugin/job_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"
#include "tests/unit/runtime/tools/kubectl_plugin/running_job.h"

namespace lockstep::kubectl_plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const WallTime kNow = *ParseTime("2026-01-02T03:10:00Z");

command_line::Lines TextOf(const Json& job) { return JobText(Read(job), {}, {}, kNow); }
std::string Joined(const command_line::Lines& lines) { return Join(lines, "\n"); }

TEST(JobText, ShowsEveryKnownField) {
  RankPlaces places;
  places.Take({"fashion-worker-0", "[rank 2 round 5] a"});
  places.Take({"fashion-worker-0", "[rank 3 round 5] b"});
  places.Take({"fashion-worker-1", "[rank 0 round 5] c"});
  EXPECT_THAT(
      JobText(Read(RunningJob()), PodRowsFrom(PodList(), "trainer"), places, kNow),
      ElementsAre("fashion in team, 10 min old",                                    //
                  "State       Running",                                            //
                  "!           Degraded (ReplicasMissing: 2 of 3 replicas train)",  //
                  "Pods        2 of 3 ready, elastic from 1 to 4",                  //
                  "Round       5, 4 ranks",                                         //
                  "Progress    step 500 of 2000 (25 %), epoch 1, loss 0.3312, 5120 samples/s, 25 ms a step, "
                  "about 38 s left",                                               //
                  "Tested      accuracy 0.875, loss 0.4 after step 469, epoch 1",  //
                  "Checkpoint  step 400, 40 s ago, s3://lockstep/fashion/step-000000000400",
                  "Goodput     93.4 %, 9 min 20 s on steps whose result was kept; lost to startup 21 s, "
                  "rendezvous 3.3 s, "
                  "recompute 12 s",
                  "Restarts    1 charged, 3 allowed",  //
                  "", "AGO    ROUND  CAUSE           RANKS  MENDED BY   RECOVERY  LOST STEPS  WHAT",
                  "2 min  4      Infrastructure  4-5    ReplacePod  0.4 s     1           round 4: "
                  "fashion-worker-2: no heartbeat; last lines of fashion-worker-2:",
                  "", "RANK  POD               STATE             READY  NODE",
                  "0     fashion-worker-1  Running           yes    node-3",
                  "2-3   fashion-worker-0  Running           yes    node-1",
                  "-     fashion-worker-2  ImagePullBackOff  no     -"));
}

TEST(JobText, ShowsACheckpointWhoseStepIsNotKnown) {
  const Json job = With(RunningJob(), "/status/checkpoint",
                        R"({"time": "2026-01-02T03:00:03Z", "uri": "file:///checkpoints/model.pt"})");
  EXPECT_THAT(
      TextOf(job),
      testing::Contains(testing::MatchesRegex("Checkpoint  [0-9a-z ]* ago, file:///checkpoints/model.pt")));
}

TEST(JobText, SaysWhyAJobIsInItsState) {
  const auto line = [](const char* state, const char* condition) {
    Json job = With(RunningJob(), "/status/state", state);
    return TextOf(With(job, "/status/conditions", condition)).at(1);
  };
  EXPECT_EQ(line(R"("Failed")", R"([{"type": "Failed", "status": "True", "reason": "UserError",
                  "message": "data.path: /x: no such file\nand more", "lastTransitionTime": "2026-01-02T03:00:03Z"}])"),
            "State       Failed (UserError: data.path: /x: no such file)");
  EXPECT_EQ(line(R"("Pending")", R"([{"type": "Scheduled", "status": "False", "reason": "PodsStarting",
                  "message": "0 of 3 pods have a node", "lastTransitionTime": "2026-01-02T03:00:03Z"}])"),
            "State       Pending (PodsStarting: 0 of 3 pods have a node)");
  Json fresh = RunningJob();
  fresh.erase("status");
  EXPECT_EQ(TextOf(fresh).at(1), "State  Created (the operator has not reconciled it yet: is it running?)");
  fresh["spec"]["managedBy"] = "example.com/team";
  EXPECT_EQ(TextOf(fresh).at(1),
            "State  Created (no operator with managedBy example.com/team has reconciled it yet: is one "
            "running that watches this namespace?)");
}

TEST(JobText, NamesAConditionOnlyOnce) {
  const Json job =
      With(With(RunningJob(), "/status/state", R"("Stalled")"), "/status/conditions",
           R"([{"type": "Stalled", "status": "True", "reason": "SecretMissing", "message": "no Secret s3",
                             "lastTransitionTime": "2026-01-02T03:00:03Z"}])");
  EXPECT_EQ(TextOf(job).at(1), "State       Stalled (SecretMissing: no Secret s3)");
  EXPECT_THAT(Joined(TextOf(job)), Not(HasSubstr("!")));
}

TEST(JobText, SaysOnceThatAJobIsSuspended) {
  Json job = With(RunningJob(), "/status/state", R"("Suspended")");
  job = With(job, "/status/conditions", R"([
      {"type": "Scheduled", "status": "False", "reason": "SuspendRequested", "message": "",
       "lastTransitionTime": "2026-01-02T03:00:03Z"},
      {"type": "Suspended", "status": "True", "reason": "SuspendRequested", "message": "spec.suspend is true",
       "lastTransitionTime": "2026-01-02T03:00:03Z"}])");
  EXPECT_EQ(TextOf(job).at(1), "State       Suspended (SuspendRequested: spec.suspend is true)");
  EXPECT_THAT(TextOf(job).at(2), HasSubstr("Pods ")) << "nothing to act on";
}

TEST(JobText, PromisesNoTimeForAJobThatDoesNotTrain) {
  const std::string text = Joined(TextOf(With(RunningJob(), "/status/state", R"("Restarting")")));
  EXPECT_THAT(text, HasSubstr("step 500 of 2000"));
  EXPECT_THAT(text, Not(HasSubstr("left")));
  EXPECT_THAT(text, Not(HasSubstr("samples/s")));
}

TEST(JobText, ReportsThatAChangeIsNotObservedYet) {
  EXPECT_THAT(TextOf(With(RunningJob(), "/metadata/generation", "4")).at(3),
              HasSubstr("has not observed the newest change of the spec"));
}

TEST(JobTable, HasALineForEachJob) {
  Json fresh = With(RunningJob(), "/metadata/name", R"("new")");
  fresh.erase("status");
  const std::vector<api::TrainingJob> jobs = {Read(RunningJob()), Read(fresh)};
  EXPECT_THAT(JobTable(jobs, false, kNow),
              ElementsAre("NAME     STATE    READY  WORLD  STEP      LOSS    GOODPUT  RESTARTS  AGE",
                          "fashion  Running  2/3    4      500/2000  0.3312  93 %     1         10 min",
                          "new      Created  0/3    -      -         -       -        0         10 min"));
  EXPECT_THAT(JobTable(jobs, true, kNow).at(1), HasSubstr("team       fashion  Running"));
}

}  // namespace
}  // namespace lockstep::kubectl_plugin

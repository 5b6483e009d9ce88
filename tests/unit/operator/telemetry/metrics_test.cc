#include "operator/telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace lockstep::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const SystemClock kClock;

api::TrainingJob Job() {
  api::TrainingJob job;
  job.metadata.name = "a";
  job.metadata.namespace_name = "team";
  job.metadata.uid = "u";
  return job;
}

TEST(Metrics, ExistFromTheStart) {
  Metrics metrics(kClock, 4, "https://api", "leader");
  const std::string text = metrics.Expose(3).body;
  for (const char* line :
       {"controller_runtime_reconcile_total{controller=\"distributedtrainingjob\",result=\"error\"} 0",
        "controller_runtime_max_concurrent_reconciles{controller=\"distributedtrainingjob\"} 4",
        "leader_election_master_status{name=\"leader\"} 0", "lockstep_shards{name=\"leader\"} 0",
        "lockstep_jobs{state=\"Running\"} 0", "lockstep_build_info"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, HasSubstr("} 3\n")) << "workqueue_depth";
}

TEST(Metrics, ReportHowLongAWorkerHasBeenAtAKey) {
  testing::FakeClock clock;
  Metrics metrics(clock, 1, "h", "l");
  metrics.OnStarted(Seconds(0));
  clock.Advance(std::chrono::seconds(7));
  const std::string busy = metrics.Expose(0).body;
  metrics.OnFinished(controller::ReconcileResult::kSuccess, Seconds(7));
  const std::string idle = metrics.Expose(0).body;
  for (const std::string name :
       {"workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds"}) {
    const std::string series =
        name + "{controller=\"distributedtrainingjob\",name=\"distributedtrainingjob\"} ";
    EXPECT_THAT(busy, HasSubstr(series + "7\n"));
    EXPECT_THAT(idle, HasSubstr(series + "0\n"));
  }
}

TEST(Metrics, FollowAJobAndRemoveItsSeries) {
  Metrics metrics(kClock, 1, "h", "l");
  api::TrainingJobStatus status;
  status.state = "Running";
  status.attempt = 2;
  status.rendezvous = api::RendezvousStatus{5, 8};
  status.goodput = api::GoodputStatus{.ratio = 0.75, .productive_seconds = 30};
  status.goodput->lost_seconds.rendezvous = 10;
  const rendezvous::RendezvousView view{.members = {"a-worker-0", "a-worker-1"}, .waiting = 1};
  for (int pass = 0; pass < 2; ++pass) metrics.OnJob(Job(), status, {.held = 16, .waiting = 8}, view);
  std::string text = metrics.Expose(0).body;
  EXPECT_THAT(text, HasSubstr("lockstep_jobs{state=\"Running\"} 1"));
  EXPECT_THAT(text, HasSubstr("lockstep_job_world_size{job_name=\"a\",namespace=\"team\"} 8"));
  EXPECT_THAT(text, HasSubstr("lockstep_job_members{job_name=\"a\",namespace=\"team\",state=\"round\"} 2"));
  EXPECT_THAT(text, HasSubstr("lockstep_job_members{job_name=\"a\",namespace=\"team\",state=\"waiting\"} 1"));
  EXPECT_THAT(text, HasSubstr("lockstep_job_gpus{job_name=\"a\",namespace=\"team\",state=\"held\"} 16"));
  EXPECT_THAT(text, HasSubstr("lockstep_job_gpus{job_name=\"a\",namespace=\"team\",state=\"waiting\"} 8"));
  EXPECT_THAT(text, HasSubstr("lockstep_job_restarts_total{job_name=\"a\",namespace=\"team\"} 2"));
  EXPECT_THAT(text, HasSubstr("lockstep_job_goodput_ratio{job_name=\"a\",namespace=\"team\"} 0.75"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "lockstep_job_lost_seconds_total{job_name=\"a\",namespace=\"team\",reason=\"rendezvous\"} 10"));
  EXPECT_THAT(text, HasSubstr("lockstep_job_straggler{job_name=\"a\",namespace=\"team\"} 0"));
  status.conditions = {{.type = "Degraded", .status = api::ConditionStatus::kTrue, .reason = "Straggler"}};
  metrics.OnJob(Job(), status, {}, {});
  text = metrics.Expose(0).body;
  EXPECT_THAT(text, HasSubstr("lockstep_job_straggler{job_name=\"a\",namespace=\"team\"} 1"));
  metrics.OnJobGone({"team", "a", "u"});
  text = metrics.Expose(0).body;
  EXPECT_THAT(text, HasSubstr("lockstep_jobs{state=\"Running\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("job_name=")));
}

TEST(Metrics, HaveTheSpeedOfAJobWithEachOfItsSizes) {
  Metrics metrics(kClock, 1, "h", "l");
  const auto series = [](const std::string& name, int world_size) {
    return "lockstep_job_scaling_" + name + "{job_name=\"a\",namespace=\"team\",world_size=\"" +
           std::to_string(world_size) + "\"} ";
  };
  api::TrainingJobStatus status;
  status.scaling = {{.world_size = 2, .samples_per_second = 640},
                    {.world_size = 4, .samples_per_second = 960}};
  metrics.OnJob(Job(), status, {}, {});
  std::string text = metrics.Expose(0).body;
  EXPECT_THAT(text, HasSubstr(series("samples_per_second", 2) + "640\n"));
  EXPECT_THAT(text, HasSubstr(series("samples_per_second", 4) + "960\n"));
  EXPECT_THAT(text, HasSubstr(series("efficiency_ratio", 2) + "1\n"));
  EXPECT_THAT(text, HasSubstr(series("efficiency_ratio", 4) + "0.75\n"));
  status.scaling = {{.world_size = 4, .samples_per_second = 900}};
  metrics.OnJob(Job(), status, {}, {});
  text = metrics.Expose(0).body;
  EXPECT_THAT(text, Not(HasSubstr("world_size=\"2\""))) << "the status keeps a limited number of sizes";
  EXPECT_THAT(text, HasSubstr(series("samples_per_second", 4) + "900\n"));
  EXPECT_THAT(text, HasSubstr(series("efficiency_ratio", 4) + "1\n"));
  metrics.OnJobGone({"team", "a", "u"});
  EXPECT_THAT(metrics.Expose(0).body, Not(HasSubstr("world_size=")));
}

// The seconds since the newest checkpoint turn out to be lost; a counter that fell would read as a restart.
TEST(Metrics, CountProductiveSecondsThatNeverDecrease) {
  Metrics metrics(kClock, 1, "h", "l");
  api::TrainingJobStatus status;
  for (const auto& [seconds, counted] : {std::pair{100, 100}, {70, 100}, {95, 100}, {130, 130}}) {
    status.goodput = api::GoodputStatus{.productive_seconds = static_cast<double>(seconds)};
    metrics.OnJob(Job(), status, {}, {});
    EXPECT_THAT(metrics.Expose(0).body,
                HasSubstr("lockstep_job_productive_seconds_total{job_name=\"a\",namespace=\"team\"} " +
                          std::to_string(counted) + "\n"));
  }
}

// Metrics are readable without authorisation, and owner references and messages identify a job by its uid.
TEST(Metrics, ContainNoUid) {
  Metrics metrics(kClock, 1, "h", "l");
  api::TrainingJob job = Job();
  job.metadata.uid = "0f8e2c5d";
  metrics.OnJob(job, {}, {}, {});
  const std::string text = metrics.Expose(0).body;
  EXPECT_THAT(text, HasSubstr("lockstep_job_info{job_name=\"a\",model=\"\",namespace=\"team\"} 1"));
  EXPECT_THAT(text, Not(HasSubstr("0f8e2c5d")));
}

TEST(Metrics, ReportStepsAndCheckpointsOnlyOfJobsThatHaveThem) {
  Metrics metrics(kClock, 1, "h", "l");
  api::TrainingJobStatus status;
  metrics.OnJob(Job(), status, {}, {});
  EXPECT_THAT(metrics.Expose(0).body, Not(HasSubstr("lockstep_job_step{")));
  status.progress = api::ProgressStatus{.step = 7};
  metrics.OnJob(Job(), status, {}, {});
  EXPECT_THAT(metrics.Expose(0).body, HasSubstr("lockstep_job_step{job_name=\"a\",namespace=\"team\"} 7"))
      << "a witness reports the steps of a program";
  EXPECT_THAT(metrics.Expose(0).body, Not(HasSubstr("lockstep_job_checkpoint_step{")));
  api::TrainingJob trains = Job();
  trains.metadata.uid = "v";
  trains.metadata.name = "b";
  trains.spec.training.emplace();
  trains.spec.checkpoint.emplace();
  metrics.OnJob(trains, status, {}, {});
  EXPECT_THAT(metrics.Expose(0).body, HasSubstr("lockstep_job_step{job_name=\"b\",namespace=\"team\"} 7"));
  EXPECT_THAT(metrics.Expose(0).body,
              HasSubstr("lockstep_job_checkpoint_step{job_name=\"b\",namespace=\"team\"} 0"));
  metrics.OnJobGone({"team", "b", "v"});
  EXPECT_THAT(metrics.Expose(0).body, Not(HasSubstr("job_name=\"b\"")));
}

TEST(Metrics, ReportOneStateOfEachJob) {
  Metrics metrics(kClock, 1, "h", "l");
  api::TrainingJobStatus status;
  for (const char* state : {"Running", "Failed"}) {
    status.state = state;
    metrics.OnJob(Job(), status, {}, {});
  }
  const std::string text = metrics.Expose(0).body;
  EXPECT_THAT(text, HasSubstr("lockstep_job_state{job_name=\"a\",namespace=\"team\",state=\"Failed\"} 1"));
  EXPECT_THAT(text, Not(HasSubstr("namespace=\"team\",state=\"Running\"}")));
}

TEST(Metrics, CountsEachRecoveryOnceUnderItsLevel) {
  Metrics metrics(kClock, 1, "h", "l");
  rendezvous::RoundChange change{
      .round = 2, .cause = protocol::FailureCause::kHang, .level = rendezvous::RecoveryLevel::kMembership};
  change.recovery_seconds = 0.2;
  metrics.OnJob(Job(), {}, {}, {.changes = {change}});
  EXPECT_THAT(metrics.Expose(0).body, HasSubstr("lockstep_recovery_seconds_count{level=\"Membership\"} 0"))
      << "its pod may still come back";
  change.level = rendezvous::RecoveryLevel::kRespawn;
  change.is_repaired = true;
  change.lost_steps = 3;
  const rendezvous::RoundChange growth{
      .round = 3, .cause = std::nullopt, .is_repaired = true, .recovery_seconds = 0.1};
  for (int pass = 0; pass < 3; ++pass) metrics.OnJob(Job(), {}, {}, {.changes = {change, growth}});
  const std::string text = metrics.Expose(0).body;
  EXPECT_THAT(text, HasSubstr("lockstep_recovery_seconds_count{level=\"Respawn\"} 1"));
  EXPECT_THAT(text, HasSubstr("lockstep_recovery_seconds_bucket{level=\"Respawn\",le=\"0.25\"} 1"));
  EXPECT_THAT(text, HasSubstr("lockstep_lost_steps_total{level=\"Respawn\"} 3"));
  EXPECT_THAT(
      text,
      HasSubstr("lockstep_job_recoveries_total{job_name=\"a\",level=\"Respawn\",namespace=\"team\"} 1"));
  EXPECT_THAT(text, HasSubstr("lockstep_recoveries_total{cause=\"Hang\",level=\"Respawn\"} 1"));
  EXPECT_THAT(text, HasSubstr("lockstep_recoveries_total{cause=\"Preemption\",level=\"Respawn\"} 0"));
  EXPECT_THAT(text, HasSubstr("lockstep_recovery_seconds_count{level=\"Membership\"} 0"));
  metrics.OnJobGone({"team", "a", Job().metadata.uid});
  EXPECT_THAT(metrics.Expose(0).body, Not(HasSubstr("job_name=\"a\"")));
}

api::Condition ConditionAt(const char* type, api::ConditionStatus status, int seconds) {
  return {.type = type, .status = status, .last_transition_time = WallTime(std::chrono::seconds(seconds))};
}

TEST(Metrics, CountHowLongAJobQueuedAndStarted) {
  using api::ConditionStatus;
  Metrics metrics(kClock, 1, "h", "l");
  api::TrainingJob job = Job();
  const auto pass = [&](const api::TrainingJobStatus& status) {
    metrics.OnJob(job, status, {}, {});
    job.status = status;
  };
  api::TrainingJobStatus status;
  status.conditions = {ConditionAt("QuotaReserved", ConditionStatus::kFalse, 100)};
  pass(status);
  status.conditions = {ConditionAt("QuotaReserved", ConditionStatus::kTrue, 140)};
  status.goodput.emplace();
  status.start_time = WallTime(std::chrono::seconds(140));
  pass(status);
  status.conditions.push_back(ConditionAt("Initialized", ConditionStatus::kTrue, 147));
  pass(status);
  pass(status);
  const std::string text = metrics.Expose(0).body;
  for (const char* line : {"lockstep_queue_seconds_sum 40\n", "lockstep_queue_seconds_count 1\n",
                           "lockstep_start_seconds_sum 7\n", "lockstep_start_seconds_count 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  status.conditions[0] = ConditionAt("QuotaReserved", ConditionStatus::kFalse, 200);
  pass(status);
  status.conditions[0] = ConditionAt("QuotaReserved", ConditionStatus::kTrue, 300);
  pass(status);
  EXPECT_THAT(metrics.Expose(0).body, HasSubstr("lockstep_queue_seconds_count 1\n")) << "evicted in between";
}

TEST(Metrics, CountAJobThatFailsOnceWithItsReason) {
  Metrics metrics(kClock, 1, "h", "l");
  EXPECT_THAT(metrics.Expose(0).body, HasSubstr("lockstep_failed_jobs_total{reason=\"UserError\"} 0"));
  api::TrainingJob job = Job();
  api::TrainingJobStatus failed;
  failed.conditions = {{.type = "Failed", .status = api::ConditionStatus::kTrue, .reason = "UserError"}};
  metrics.OnJob(job, failed, {}, {});
  job.status = failed;
  metrics.OnJob(job, failed, {}, {});
  EXPECT_THAT(metrics.Expose(0).body, HasSubstr("lockstep_failed_jobs_total{reason=\"UserError\"} 1"));
}

TEST(Metrics, CountRequestsByCode) {
  Metrics metrics(kClock, 1, "https://api", "l");
  metrics.OnRequest("GET", 200);
  metrics.OnRequest("GET", 0);
  const std::string text = metrics.Expose(0).body;
  EXPECT_THAT(text, HasSubstr("code=\"200\""));
  EXPECT_THAT(text, HasSubstr("code=\"<error>\""));
}

}  // namespace
}  // namespace lockstep::telemetry

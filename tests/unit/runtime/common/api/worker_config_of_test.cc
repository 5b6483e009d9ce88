#include "runtime/common/api/worker_config_of.h"

#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

TEST(RanksPerPod, ReadsTheLimitsOfTheTrainer) {
  const struct {
    NprocMode mode;
    std::string limits;
    int nproc;
  } cases[] = {
      {NprocMode::kAuto, "{}", 1},
      {NprocMode::kAuto, R"({"nvidia.com/gpu": 8, "cpu": "4"})", 8},
      {NprocMode::kAuto, R"({"nvidia.com/gpu": "2"})", 2},
      {NprocMode::kAuto, R"({"nvidia.com/mig-1g.5gb": 2})", 2},
      {NprocMode::kAuto, R"({"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "4"})", 4},
      {NprocMode::kAuto, R"({"amd.com/gpu": "4"})", 4},
      {NprocMode::kCpu, R"({"cpu": "3"})", 3},
      {NprocMode::kCpu, R"({"cpu": "2500m"})", 2},
      {NprocMode::kCpu, R"({"cpu": "250m"})", 1},
      {NprocMode::kCpu, "{}", 1},
  };
  for (const auto& test : cases) {
    TrainingJobSpec spec;
    spec.nproc_per_node.mode = test.mode;
    const Json trainer = {{"name", "trainer"}, {"resources", {{"limits", *ParseJson(test.limits)}}}};
    spec.worker.pod_template = {{"spec", {{"containers", Json::array({trainer})}}}};
    EXPECT_EQ(RanksPerPod(spec), test.nproc) << test.limits;
  }
}

TEST(RanksPerPod, IsOneWhereOneProcessTakesAllDevices) {
  TrainingJobSpec spec;
  const Json trainer = {{"name", "trainer"}, {"resources", {{"limits", {{"nvidia.com/gpu", 8}}}}}};
  spec.worker.pod_template = {{"spec", {{"containers", Json::array({trainer})}}}};
  spec.training.emplace();
  EXPECT_EQ(RanksPerPod(spec), 8);
  for (const Strategy strategy : {Strategy::kDataparallel, Strategy::kModelparallel}) {
    spec.training->strategy = strategy;
    EXPECT_EQ(RanksPerPod(spec), 1);
  }
}

TEST(WorkerConfigOf, ContainsTheGpusOfTheTrainer) {
  for (const auto& [limits, gpus] : std::vector<std::pair<std::string, int>>{
           {"{}", 0}, {R"({"cpu": 4})", 0}, {R"({"nvidia.com/gpu": 8, "cpu": 4})", 8}}) {
    TrainingJob job;
    const Json trainer = {{"name", "trainer"}, {"resources", {{"limits", *ParseJson(limits)}}}};
    job.spec.worker.pod_template = {{"spec", {{"containers", Json::array({trainer})}}}};
    EXPECT_EQ(WorkerConfigOf(job).requested_gpus, gpus) << limits;
  }
}

TEST(WorkerConfigOf, ContainsTheProcessorsThatTheTrainerRequests) {
  for (const auto& [requests, processors] : std::vector<std::pair<std::string, int>>{
           {"{}", 0}, {R"({"cpu": "250m"})", 1}, {R"({"cpu": 6})", 6}, {R"({"memory": "4"})", 0}}) {
    TrainingJob job;
    const Json trainer = {{"name", "trainer"}, {"resources", {{"requests", *ParseJson(requests)}}}};
    job.spec.worker.pod_template = {{"spec", {{"containers", Json::array({trainer})}}}};
    EXPECT_EQ(WorkerConfigOf(job).requested_processors, processors) << requests;
  }
}

TEST(WorkerConfigOf, GivesTheTimeThatThePodHasWhereNoCheckpointSaysOther) {
  TrainingJob job;
  EXPECT_EQ(WorkerConfigOf(job).grace_period_seconds, 30);
  job.spec.worker.pod_template = {{"spec", {{"terminationGracePeriodSeconds", 90}}}};
  EXPECT_EQ(WorkerConfigOf(job).grace_period_seconds, 90);
  job.spec.checkpoint.emplace().grace_period_seconds = 15;
  EXPECT_EQ(WorkerConfigOf(job).grace_period_seconds, 15);
}

TEST(WorkerConfigOf, ContainsTheLimitOfRespawnsInPlace) {
  TrainingJob job;
  job.spec.failure_policy.in_place_limit = 7;
  EXPECT_EQ(WorkerConfigOf(job).in_place_limit, 7);
  job.spec.failure_policy.restart_strategy = RestartStrategy::kRecreate;
  EXPECT_EQ(WorkerConfigOf(job).in_place_limit, 0) << "no process is started again in its pod";
}

TEST(WorkerConfigOf, ContainsTheHangSettings) {
  TrainingJob job;
  EXPECT_EQ(WorkerConfigOf(job).health.first_step_timeout_seconds, 1800);
  EXPECT_EQ(WorkerConfigOf(job).health.step_timeout_seconds, 0) << "learned";
  job.spec.health_policy = {.first_step_timeout_seconds = 60,
                            .step_timeout_seconds = 5,
                            .step_timeout_factor = 3,
                            .on_hang = HealthAction::kReplacePod,
                            .straggler = StragglerPolicy{.action = HealthAction::kRestart}};
  // Through the JSON document, as a worker reads it.
  const auto config = protocol::WorkerConfigFromJson(protocol::WorkerConfigToJson(WorkerConfigOf(job)));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->health.first_step_timeout_seconds, 60);
  EXPECT_EQ(config->health.step_timeout_seconds, 5);
  EXPECT_EQ(config->health.step_timeout_factor, 3);
  EXPECT_EQ(config->health.on_hang, protocol::HealthAction::kReplacePod);
  EXPECT_EQ(config->health.on_straggler, protocol::HealthAction::kRestart);
}

}  // namespace
}  // namespace lockstep::api

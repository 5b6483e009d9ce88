#include "runtime/telemetry/training_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSkipped =
    R"(lockstep_train_skipped_steps_total{job_name="job",namespace="lab",local_rank="1",replica="2"} )";

// A restarted rank counts from zero again; the pod's counter continues.
TEST(TrainingMetrics, CountsSkippedStepsOverTheLivesOfARank) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  metrics.Observe(1, protocol::Progress{});
  EXPECT_THAT(metrics.Scrape().body, HasSubstr(std::string(kSkipped) + "0\n"));
  metrics.Observe(1, protocol::Progress{.skipped_steps_total = 3});
  EXPECT_THAT(metrics.Scrape().body, HasSubstr(std::string(kSkipped) + "3\n"));
  metrics.Observe(1, protocol::Progress{.skipped_steps_total = 1});
  EXPECT_THAT(metrics.Scrape().body, HasSubstr(std::string(kSkipped) + "4\n"));
}

TEST(TrainingMetrics, CountsCorruptRecords) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  metrics.Observe(1, protocol::Progress{.corrupt_records_total = 5});
  EXPECT_THAT(metrics.Scrape().body, HasSubstr("lockstep_train_corrupt_records_total{job_name=\"job\","
                                               "namespace=\"lab\",local_rank=\"1\",replica=\"2\"} 5\n"));
}

GpuReading Reading() { return {.gpu = 3, .local_rank = 1, .uuid = "GPU-aa"}; }

constexpr const char* kStepTimeCount =
    R"(lockstep_train_step_seconds_count{job_name="job",namespace="lab"} )";

// Two steps of 0.03 s and one of 200 s; then one of 0.03 s in a new process.
TEST(TrainingMetrics, KeepsTheTimesOfStepsOverTheLivesOfARank) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  metrics.SetPlace(/*local_rank=*/1, /*rank=*/0, /*world_size=*/4);
  protocol::Usage usage;
  usage.step_times.Add(2, 0.06);
  metrics.Observe(1, usage);
  usage.step_times.Add(1, 200);
  metrics.Observe(1, usage);
  protocol::Usage of_another;
  of_another.step_times.Add(1, 0.03);
  metrics.Observe(1, of_another);
  const auto line = [](const std::string& le, const std::string& count) {
    return "lockstep_train_step_seconds_bucket{job_name=\"job\",namespace=\"lab\",le=\"" + le + "\"} " +
           count + "\n";
  };
  EXPECT_THAT(metrics.Scrape().body, AllOf(HasSubstr(line("0.025", "0")), HasSubstr(line("0.05", "3")),
                                           HasSubstr(line("150", "3")), HasSubstr(line("+Inf", "4"))));
}

TEST(TrainingMetrics, CountsTheTimesOfStepsThatARankCommitsAsRankZero) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/3, /*world_size=*/4);
  protocol::Usage usage;
  usage.step_times.Add(5, 1);
  metrics.Observe(0, usage);
  EXPECT_THAT(metrics.Scrape().body, Not(HasSubstr("lockstep_train_step_seconds")));
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/0, /*world_size=*/4);
  usage.step_times.Add(2, 0.4);
  metrics.Observe(0, usage);
  EXPECT_THAT(metrics.Scrape().body, HasSubstr(std::string(kStepTimeCount) + "2\n"));
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/1, /*world_size=*/4);
  usage.step_times.Add(2, 0.4);
  metrics.Observe(0, usage);
  EXPECT_THAT(metrics.Scrape().body, HasSubstr(std::string(kStepTimeCount) + "2\n"));
}

TEST(TrainingMetrics, NamesTheGlobalRankOfTheNewestRoundOnly) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}, .nproc = 2}, /*slot=*/2);
  const auto info = [](const std::string& local_rank, const std::string& rank) {
    return HasSubstr("lockstep_rank_info{job_name=\"job\",namespace=\"lab\",local_rank=\"" + local_rank +
                     "\",rank=\"" + rank + "\",replica=\"2\"} 1\n");
  };
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/4, /*world_size=*/6);
  metrics.SetPlace(/*local_rank=*/1, /*rank=*/5, /*world_size=*/6);
  EXPECT_THAT(metrics.Scrape().body, AllOf(info("0", "4"), info("1", "5")));
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/2, /*world_size=*/4);
  metrics.SetPlace(/*local_rank=*/1, /*rank=*/3, /*world_size=*/4);
  EXPECT_THAT(metrics.Scrape().body,
              AllOf(info("0", "2"), info("1", "3"), Not(info("0", "4")), Not(info("1", "5"))));
}

// Replica 1 has the ranks 2 and 3.
TEST(TrainingMetrics, SumsTheRanksOfAPodThatAreOverTheLimit) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}, .nproc = 2, .rank_metrics_limit = 2},
                          /*slot=*/1);
  for (const int i : {0, 1}) {
    metrics.SetPlace(i, /*rank=*/2 + i, /*world_size=*/4);
    metrics.Observe(i, protocol::Ready{.step = -1});
    metrics.Observe(i, protocol::Synced{.round = 1, .source = "fresh", .seconds = 1});
    metrics.Observe(
        i, protocol::Progress{
               .step = 5, .steps_total = 5, .samples_total = 10 + i, .phase_seconds = {{"data", 1}}});
    metrics.Observe(i, protocol::Usage{.tokens_total = 7, .communication_bytes_total = 512});
    metrics.SetMemory(i, 1e9, 2e9);
    metrics.CountHang(i);
  }
  GpuReading gpu = Reading();
  gpu.power_watts = 612.5;
  gpu.xids = {79};
  metrics.Observe({gpu});
  const std::string text = metrics.Scrape().body;
  const std::string labels = R"({job_name="job",namespace="lab",replica="1"} )";
  EXPECT_THAT(text, AllOf(HasSubstr("lockstep_train_samples_total" + labels + "21\n"),
                          HasSubstr("lockstep_train_tokens_total" + labels + "14\n"),
                          HasSubstr("lockstep_train_steps_total" + labels + "5\n"),
                          HasSubstr("lockstep_rank_starts_total" + labels + "2\n"),
                          HasSubstr("lockstep_rank_hangs_total" + labels + "2\n"),
                          HasSubstr("gpu=\"3\",replica=\"1\",uuid=\"GPU-aa\",xid=\"79\"} 1\n")));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("local_rank")), Not(HasSubstr("lockstep_rank_info")),
                          Not(HasSubstr("phase=")), Not(HasSubstr("communication_bytes")),
                          Not(HasSubstr("lockstep_rank_memory_bytes")), Not(HasSubstr("checkpoint_memory")),
                          Not(HasSubstr("lockstep_gpu_power")), Not(HasSubstr("lockstep_sync_last")),
                          Not(HasSubstr("lockstep_train_step{"))));
}

TEST(TrainingMetrics, CountsTokensOfTextAloneAndCommunicatedBytes) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  metrics.Observe(1, protocol::Usage{.communication_bytes_total = 512});
  const std::string labels = R"({job_name="job",namespace="lab",local_rank="1",replica="2"} )";
  EXPECT_THAT(metrics.Scrape().body,
              AllOf(HasSubstr("lockstep_train_communication_bytes_total" + labels + "512\n"),
                    Not(HasSubstr("lockstep_train_tokens_total"))));
  metrics.Observe(1, protocol::Usage{.tokens_total = 64});
  EXPECT_THAT(metrics.Scrape().body, HasSubstr("lockstep_train_tokens_total" + labels + "64\n"));
}

TEST(TrainingMetrics, HasTheMemoryOfCheckpointsWhereThereIsAny) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  metrics.SetMemory(1, 1000, 0);
  const std::string labels = R"({job_name="job",namespace="lab",local_rank="1",replica="2"} )";
  EXPECT_THAT(metrics.Scrape().body, AllOf(HasSubstr("lockstep_rank_memory_bytes" + labels + "1000\n"),
                                           Not(HasSubstr("checkpoint_memory"))));
  metrics.SetMemory(1, 1000, 500);
  EXPECT_THAT(metrics.Scrape().body, HasSubstr("lockstep_rank_checkpoint_memory_bytes" + labels + "500\n"));
  metrics.SetMemory(1, 1000, 0);
  EXPECT_THAT(metrics.Scrape().body, Not(HasSubstr("checkpoint_memory"))) << "its process is another one";
}

constexpr const char* kOfGpu =
    R"({job_name="job",namespace="lab",gpu="3",local_rank="1",replica="2",uuid="GPU-aa"} )";

TEST(TrainingMetrics, ReportsTheGpusOfEachRank) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  GpuReading gpu = Reading();
  gpu.utilization = 0.75;
  gpu.memory_used_bytes = 250;
  gpu.memory_total_bytes = 1000;
  gpu.power_watts = 612.5;
  gpu.temperature_celsius = 61;
  metrics.Observe({gpu});
  const std::string labels = kOfGpu;
  EXPECT_THAT(metrics.Scrape().body, AllOf(HasSubstr("lockstep_gpu_utilization_ratio" + labels + "0.75\n"),
                                           HasSubstr("lockstep_gpu_memory_used_bytes" + labels + "250\n"),
                                           HasSubstr("lockstep_gpu_memory_total_bytes" + labels + "1000\n"),
                                           HasSubstr("lockstep_gpu_power_watts" + labels + "612.5\n"),
                                           HasSubstr("lockstep_gpu_temperature_celsius" + labels + "61\n")));
}

TEST(TrainingMetrics, AGpuThatNoLongerAnswersKeepsNoOldNumbers) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  GpuReading gpu = Reading();
  gpu.utilization = 0.75;
  metrics.Observe({gpu});
  metrics.Observe({Reading()});
  EXPECT_THAT(metrics.Scrape().body, Not(HasSubstr("lockstep_gpu_utilization_ratio{")));
}

// A GPU keeps its count across pods until its driver is loaded again.
TEST(TrainingMetrics, CountsErrorsOfAGpusMemorySinceThePodBegan) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  GpuReading gpu = Reading();
  for (const auto& [errors, counted] : {std::pair{5, "0\n"}, {7, "2\n"}, {1, "3\n"}}) {
    gpu.ecc_errors = errors;
    metrics.Observe({gpu});
    EXPECT_THAT(metrics.Scrape().body,
                HasSubstr("lockstep_gpu_ecc_errors_total" + std::string(kOfGpu) + counted));
  }
}

TEST(TrainingMetrics, RemovesTheEvaluationOfAPodThatNoLongerHoldsRankZero) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  const auto evaluation =
      HasSubstr("lockstep_evaluation_accuracy_ratio{job_name=\"job\",namespace=\"lab\"} 0.5");
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/0, /*world_size=*/4);
  metrics.Observe(0, protocol::Evaluated{.loss = 2, .accuracy = 0.5});
  metrics.SetPlace(/*local_rank=*/1, /*rank=*/1, /*world_size=*/4);
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/0, /*world_size=*/2);
  EXPECT_THAT(metrics.Scrape().body, evaluation);
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/1, /*world_size=*/4);
  EXPECT_THAT(metrics.Scrape().body, Not(evaluation));
}

TEST(TrainingMetrics, CountsXidsByTheirNumber) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  GpuReading gpu = Reading();
  gpu.xids = {48, 79};
  metrics.Observe({gpu});
  gpu.xids = {48};
  metrics.Observe({gpu});
  const auto line = [](const std::string& xid, const std::string& count) {
    return "lockstep_gpu_xid_errors_total{job_name=\"job\",namespace=\"lab\",gpu=\"3\",local_rank=\"1\","
           "replica=\"2\",uuid=\"GPU-aa\",xid=\"" +
           xid + "\"} " + count + "\n";
  };
  EXPECT_THAT(metrics.Scrape().body, AllOf(HasSubstr(line("48", "2")), HasSubstr(line("79", "1"))));
}

// For a pod with two ranks in a world of four, at 100 samples per second of 10^12 operations each.
std::string MfuText(const std::string& precision, const std::vector<std::string>& gpu_names,
                    bool tf32 = false) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"},
                           .nproc = 2,
                           .training = {{"precision", precision}, {"tf32", tf32}}},
                          /*slot=*/0);
  metrics.Observe(0, protocol::Ready{.flops_per_sample = 1e12});
  metrics.SetPlace(/*local_rank=*/0, /*rank=*/0, /*world_size=*/4);
  std::vector<GpuReading> gpus;
  for (const std::string& name : gpu_names) gpus.push_back({.name = name});
  metrics.Observe(gpus);
  metrics.Observe(0, protocol::Progress{.total_steps = 10, .samples_per_second = 100});
  return metrics.Scrape().body;
}

constexpr const char* kH200 = "NVIDIA H200";
constexpr const char* kFlopsPerSample =
    "lockstep_model_flops_per_sample{job_name=\"job\",namespace=\"lab\"} 1000000000000\n";

double MfuIn(const std::string& text) {
  const std::string name = "lockstep_mfu_ratio{job_name=\"job\",namespace=\"lab\"} ";
  EXPECT_THAT(text, AllOf(HasSubstr(kFlopsPerSample), HasSubstr(name)));
  return std::stod(text.substr(text.find(name) + name.size()));
}

TEST(TrainingMetrics, ReportsTheModelFlopsUtilization) {
  EXPECT_DOUBLE_EQ(MfuIn(MfuText("bf16", {kH200, kH200})), 100e12 / (4 * 989.5e12));
  EXPECT_DOUBLE_EQ(MfuIn(MfuText("fp32", {kH200, kH200}, /*tf32=*/true)), 100e12 / (4 * 494.75e12));
}

TEST(TrainingMetrics, ClaimsNoUtilizationWhereThePeakIsNotKnown) {
  for (const std::string& text : {MfuText("fp32", {kH200, kH200}), MfuText("bf16", {}),
                                  MfuText("bf16", {kH200, "NVIDIA H200 MIG 1g.18gb"})}) {
    EXPECT_THAT(text, AllOf(HasSubstr(kFlopsPerSample), Not(HasSubstr("lockstep_mfu_ratio"))));
  }
}

TEST(TrainingMetrics, SaysNothingOfAModelThatDoesNotKnowItsFlops) {
  TrainingMetrics metrics({.job = {.name_space = "lab", .name = "job"}}, /*slot=*/2);
  metrics.Observe(0, protocol::Ready{});
  metrics.Observe(0, protocol::Progress{.total_steps = 10, .samples_per_second = 100});
  EXPECT_THAT(metrics.Scrape().body, Not(HasSubstr("lockstep_model_flops")));
}

}  // namespace
}  // namespace lockstep::telemetry

#include "runtime/telemetry/training_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::telemetry {
namespace {

using testing::HasSubstr;

constexpr const char* kSkipped =
    R"(lockstep_train_skipped_steps_total{job_name="job",namespace="lab",rank="2.1"} )";

// A respawned rank counts from zero again; the pod's counter goes on.
TEST(TrainingMetrics, CountsSkippedStepsOverTheLivesOfARank) {
  TrainingMetrics metrics({.name_space = "lab", .name = "job"}, /*slot=*/2);
  metrics.Observe(1, protocol::Progress{});
  EXPECT_THAT(metrics.Scrape().body, HasSubstr(std::string(kSkipped) + "0\n"));
  metrics.Observe(1, protocol::Progress{.skipped_steps_total = 3});
  EXPECT_THAT(metrics.Scrape().body, HasSubstr(std::string(kSkipped) + "3\n"));
  metrics.Observe(1, protocol::Progress{.skipped_steps_total = 1});
  EXPECT_THAT(metrics.Scrape().body, HasSubstr(std::string(kSkipped) + "4\n"));
}

TEST(TrainingMetrics, CountsCorruptRecords) {
  TrainingMetrics metrics({.name_space = "lab", .name = "job"}, /*slot=*/2);
  metrics.Observe(1, protocol::Progress{.corrupt_records_total = 5});
  EXPECT_THAT(
      metrics.Scrape().body,
      HasSubstr("lockstep_train_corrupt_records_total{job_name=\"job\",namespace=\"lab\",rank=\"2.1\"} 5\n"));
}

}  // namespace
}  // namespace lockstep::telemetry

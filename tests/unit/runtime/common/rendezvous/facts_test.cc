// Facts of heartbeats have tests in job_entry_test.cc and service_test.cc, those of last reports in observe_test.cc.

#include "runtime/common/rendezvous/facts.h"

#include <gtest/gtest.h>

#include "runtime/common/rendezvous/last_report.h"

namespace lockstep::rendezvous {
namespace {

const WallTime kEnd{std::chrono::seconds(1000)};

TEST(Facts, TheNewestCheckpointOfAProgramIsThatOfALaterTimeInLastReportsToo) {
  RendezvousView view;
  TakeLastReport({.checkpoint = {.step = 40, .uri = "file:///c/new", .completed_at = 900}}, kEnd, view);
  TakeLastReport({.checkpoint = {.step = 60, .uri = "file:///c/old", .completed_at = 800}}, kEnd, view);
  EXPECT_EQ(view.checkpoint.uri, "file:///c/new");
  EXPECT_EQ(view.checkpoint_time, WallTime(std::chrono::seconds(900)));
}

TEST(LastReport, TheStepTimeIsThatOfThePodWhoseEndWasCutLeast) {
  RendezvousView view;
  TakeLastReport({.seconds_since_step = 5}, kEnd, view);
  EXPECT_EQ(view.step_time, WallTime{}) << "no step was completed";
  TakeLastReport({.progress = {.round = 1, .step = 8}, .seconds_since_step = 2}, kEnd, view);
  EXPECT_EQ(view.step_time, WallTime(std::chrono::seconds(998)));
  TakeLastReport({.progress = {.round = 1, .step = 8}, .seconds_since_step = 3}, kEnd, view);
  EXPECT_EQ(view.step_time, WallTime(std::chrono::seconds(998)));
  TakeLastReport({.progress = {.round = 1, .step = 7}}, kEnd, view);
  EXPECT_EQ(view.step_time, WallTime(std::chrono::seconds(998))) << "an earlier step";
}

TEST(Facts, AreNewsOnce) {
  const protocol::Heartbeat report{.member = {.pod = "a", .pod_uid = "a-uid"},
                                   .damaged_checkpoints = {{400, "cut short"}},
                                   .repairs = {{.formation = 4, .failure = {.ranks = {1}}, .seconds = 3}}};
  RendezvousView view;
  EXPECT_TRUE(TakeFacts(report, kEnd, view));
  EXPECT_FALSE(TakeFacts(report, kEnd, view));
  EXPECT_EQ(view.damaged_checkpoints.size(), 1U);
  EXPECT_EQ(view.changes.size(), 1U);
}

TEST(Facts, AFailedSaveCountsUntilALaterOneIsStored) {
  RendezvousView view;
  const auto failed = [](int64_t step) {
    return protocol::Heartbeat{.save_failed = {.step = step, .reason = "quota exceeded"}};
  };
  const protocol::Heartbeat stored{.checkpoint = {.step = 300, .uri = "s3://b/step-300"}};
  EXPECT_TRUE(TakeFacts(failed(100), kEnd, view));
  EXPECT_FALSE(TakeFacts(failed(200), kEnd, view)) << "nothing is stored either";
  EXPECT_EQ(view.save_failed->step, 200);
  EXPECT_FALSE(TakeFacts(failed(100), kEnd, view));
  EXPECT_EQ(view.save_failed->step, 200) << "another pod is late";
  EXPECT_TRUE(TakeFacts(stored, kEnd, view));
  EXPECT_FALSE(TakeFacts(failed(200), kEnd, view));
  EXPECT_EQ(view.save_failed, std::nullopt);
}

}  // namespace
}  // namespace lockstep::rendezvous

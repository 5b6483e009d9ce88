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

}  // namespace
}  // namespace lockstep::rendezvous

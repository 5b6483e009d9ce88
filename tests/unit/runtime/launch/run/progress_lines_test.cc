#include "runtime/launch/run/progress_lines.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

TEST(ProgressLinesTest, TheLastStepIsShownHoweverShortlyAfterAnother) {
  ProgressLines lines;
  rendezvous::RendezvousView view;
  view.progress.total_steps = 60;
  SteadyTime now{1h};
  ::testing::internal::CaptureStdout();
  view.progress.step = 5;
  lines.Show(view, now);
  view.progress.step = 40;
  lines.Show(view, now += 500ms);
  view.progress.step = 60;
  lines.End(view, now += 500ms);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "step 5/60  epoch 0\nstep 60/60  epoch 0\n");
}

TEST(ProgressLinesTest, TheLastStepIsShownOnce) {
  ProgressLines lines;
  rendezvous::RendezvousView view;
  view.progress = {.step = 60, .total_steps = 60};
  ::testing::internal::CaptureStdout();
  lines.Show(view, SteadyTime{1h});
  lines.End(view, SteadyTime{2h});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "step 60/60  epoch 0\n");
}

TEST(ProgressLinesTest, TroubleWithAStoreIsShownOnce) {
  ProgressLines lines;
  rendezvous::RendezvousView view;
  ::testing::internal::CaptureStdout();
  view.store_outage = {.waiting = "the next checkpoint", .reason = "refused"};
  view.save_failed = {.step = 60, .reason = "quota exceeded"};
  for (int i = 0; i < 2; ++i) lines.Show(view, SteadyTime{1h});
  view.store_outage.reset();
  view.save_failed = {.step = 80, .reason = "quota exceeded"};
  for (int i = 0; i < 2; ++i) lines.Show(view, SteadyTime{1h});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "the next checkpoint waits for a store that does not answer: refused\n"
            "no checkpoint of step 60: quota exceeded\n"
            "no checkpoint of step 80: quota exceeded\n");
}

}  // namespace
}  // namespace lockstep::launch

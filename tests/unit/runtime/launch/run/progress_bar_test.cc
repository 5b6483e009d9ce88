#include "runtime/launch/run/progress_bar.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using protocol::Progress;

// Of 5 epochs of 100 steps.
Progress At(int64_t step) {
  return {.step = step,
          .total_steps = 500,
          .epoch = static_cast<double>(step) / 100,
          .loss = 0.25,
          .samples_per_second = 1234};
}

TEST(ProgressBarTest, ShowsTheEpochTheLossTheSpeedAndTheTimeLeft) {
  ProgressBar bar;
  const SteadyTime start(1h);
  EXPECT_EQ(bar.Draw(At(110), start, 80),
            "epoch 2/5 [===>                                ] 10 %  loss 0.25  1234 samples/s");
  EXPECT_EQ(bar.Draw(At(150), start + 20s, 80),
            "epoch 2/5 [============>            ] 50 %  loss 0.25  1234 samples/s  2:55 left");
}

TEST(ProgressBarTest, AnEpochThatEndedStaysAboveInFull) {
  ProgressBar bar;
  (void)bar.Draw(At(95), SteadyTime(1h), 60);
  EXPECT_EQ(bar.Draw(At(100), SteadyTime(1h), 60).find('\n'), std::string::npos)
      << "its last step is still its own";
  const std::string drawn = bar.Draw(At(101), SteadyTime(1h), 60);
  EXPECT_TRUE(drawn.starts_with("epoch 1/5 [==")) << drawn;
  EXPECT_NE(drawn.find("] 100 %  loss"), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("\nepoch 2/5 [>"), std::string::npos) << drawn;
}

TEST(ProgressBarTest, ALastEpochThatIsCutShortFillsItsBar) {
  ProgressBar bar;
  Progress progress = At(250);
  progress.total_steps = 250;
  EXPECT_NE(bar.Draw(progress, SteadyTime(1h), 80).find("epoch 3/3 [====="), std::string::npos);
  EXPECT_NE(bar.Draw(progress, SteadyTime(1h), 80).find("] 100 %"), std::string::npos);
}

TEST(ProgressBarTest, TheTimeLeftFollowsTheNewestSpeedAndForgetsWhatIsMadeAgain) {
  ProgressBar bar;
  const SteadyTime start(1h);
  for (int second = 0; second <= 100; ++second) (void)bar.Draw(At(second), start + second * 1s, 200);
  for (int second = 1; second <= 60; ++second)
    (void)bar.Draw(At(100 + second * 2), start + 100s + second * 1s, 200);
  EXPECT_NE(bar.Draw(At(222), start + 161s, 200).find("2:19 left"), std::string::npos);
  EXPECT_EQ(bar.Draw(At(200), start + 170s, 200).find("left"), std::string::npos);
}

TEST(ProgressBarTest, NeverWiderThanTheTerminal) {
  ProgressBar bar;
  for (const int columns : {0, 5, 30, 79})
    EXPECT_LE(bar.Draw(At(10), SteadyTime(1h), columns).size(), columns);
  Progress nothing{.total_steps = 500};
  EXPECT_TRUE(ProgressBar().Draw(nothing, SteadyTime(1h), 80).starts_with("epoch 1/1 [>"));
}

}  // namespace
}  // namespace lockstep::launch

#include "runtime/train/step/loss_scale.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(LossScale, IsOneAndHasNoStateButForFp16) {
  for (const api::Precision precision : {api::Precision::kFp32, api::Precision::kBf16}) {
    LossScale scale(precision);
    scale.StepDone(false);
    EXPECT_EQ(scale.factor(), 1);
    EXPECT_FALSE(scale.CanShrink());
    EXPECT_TRUE(scale.state().empty());
  }
}

TEST(LossScale, HalvesOnOverflowDownToOneAndDoublesAfterManyGoodSteps) {
  LossScale scale(api::Precision::kFp16);
  EXPECT_EQ(scale.factor(), 65536);
  scale.StepDone(false);
  EXPECT_EQ(scale.factor(), 32768);
  for (int i = 0; i < 1999; ++i) scale.StepDone(true);
  scale.StepDone(false);
  for (int i = 0; i < 1999; ++i) scale.StepDone(true);
  EXPECT_EQ(scale.factor(), 16384) << "an overflow starts the count again";
  scale.StepDone(true);
  EXPECT_EQ(scale.factor(), 32768);
  for (int i = 0; i < 40; ++i) scale.StepDone(false);
  EXPECT_EQ(scale.factor(), 1);
  EXPECT_FALSE(scale.CanShrink());
}

TEST(LossScale, BeginsLowerTheMoreSamplesAreSummed) {
  EXPECT_EQ(LossScale(api::Precision::kFp16, 100).factor(), 1024);
  EXPECT_EQ(LossScale(api::Precision::kFp16, 1 << 20).factor(), 1);
}

TEST(LossScale, IsWhatItsTensorSays) {
  LossScale one(api::Precision::kFp16);
  LossScale other(api::Precision::kFp16);
  for (int i = 0; i < 1999; ++i) one.StepDone(true);
  other.state().front().tensor.copy_(one.state().front().tensor);
  other.StepDone(true);
  EXPECT_EQ(other.factor(), 131072);
}

}  // namespace
}  // namespace lockstep::train

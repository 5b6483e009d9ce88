#include "runtime/train/records/stack_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep::train {
namespace {

TEST(WriteStackOnSignal, WritesFramesAndContinues) {
  WriteStackOnSignal();
  ::testing::internal::CaptureStderr();
  ::raise(SIGUSR1);
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(written, ::testing::StartsWith("stack of the training thread:\n"));
  EXPECT_THAT(written, ::testing::HasSubstr("train_plan_test")) << "the program's own frames";
}

}  // namespace
}  // namespace lockstep::train

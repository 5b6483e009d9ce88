#include "runtime/train/loop/exit_code_of.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

using protocol::ExitCode;

TEST(ExitCodeOfTest, DistinguishesUserErrorsFromInfrastructure) {
  for (const ErrorCode code :
       {ErrorCode::kUnavailable, ErrorCode::kDeadlineExceeded, ErrorCode::kUnauthorized,
        ErrorCode::kForbidden, ErrorCode::kThrottled, ErrorCode::kNotFound})
    EXPECT_EQ(ExitCodeOf({code, ""}), ExitCode::kStore) << ErrorCodeName(code);
  EXPECT_EQ(ExitCodeOf({ErrorCode::kDeviceFault, ""}), ExitCode::kInfrastructure);
  EXPECT_EQ(ExitCodeOf({ErrorCode::kDeviceLost, ""}), ExitCode::kDeviceLost);
  EXPECT_EQ(ExitCodeOf({ErrorCode::kInvalidArgument, ""}), ExitCode::kUserError);
  EXPECT_EQ(ExitCodeOf({ErrorCode::kDataLoss, ""}), ExitCode::kUserError);
}

TEST(ExitCodeOfStartTest, WhatADeviceOrADiskRefusesMayBeGoneInAnotherProcess) {
  EXPECT_EQ(ExitCodeOfStart({ErrorCode::kDeviceFault, ""}, true), ExitCode::kInfrastructure);
  EXPECT_EQ(ExitCodeOfStart({ErrorCode::kInvalidArgument, "CUDA out of memory"}, true),
            ExitCode::kInfrastructure);
  EXPECT_EQ(ExitCodeOfStart({ErrorCode::kInternal, "reading a.png: Input/output error"}, false),
            ExitCode::kInfrastructure);
  EXPECT_EQ(ExitCodeOfStart({ErrorCode::kDeviceLost, ""}, true), ExitCode::kDeviceLost);
}

TEST(ExitCodeOfStartTest, AnythingElseIsWrongForGood) {
  EXPECT_EQ(ExitCodeOfStart({ErrorCode::kInvalidArgument, "out of memory"}, false),
            ExitCode::kBadConfiguration);
  EXPECT_EQ(ExitCodeOfStart({ErrorCode::kInvalidArgument, "shapes"}, true), ExitCode::kBadConfiguration);
  EXPECT_EQ(ExitCodeOfStart({ErrorCode::kDataLoss, "a.png is truncated"}, false), ExitCode::kUserError);
}

}  // namespace
}  // namespace lockstep::train

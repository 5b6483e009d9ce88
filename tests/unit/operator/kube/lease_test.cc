#include "operator/kube/lease.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

using namespace std::chrono_literals;

TEST(LeaseTimings, MustLeaveRoomForRetries) {
  EXPECT_TRUE(ValidateTimings({}).ok());
  EXPECT_FALSE(ValidateTimings({.duration = 10s, .renew_deadline = 10s, .retry_period = 2s}).ok());
  EXPECT_FALSE(ValidateTimings({.duration = 15s, .renew_deadline = 2s, .retry_period = 2s}).ok());
}

}  // namespace
}  // namespace lockstep::kube

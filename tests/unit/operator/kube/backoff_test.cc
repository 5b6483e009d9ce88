#include "operator/kube/backoff.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

using std::chrono::milliseconds;

TEST(BackoffDelay, DoublesUpToTheCapAndSpreadsTheUpperHalf) {
  const BackoffPolicy policy{.base = milliseconds(100), .cap = milliseconds(1000)};
  EXPECT_EQ(BackoffDelay(policy, 0, 0.5), milliseconds(0));
  EXPECT_EQ(BackoffDelay(policy, 1, 0.0), milliseconds(50));
  EXPECT_EQ(BackoffDelay(policy, 1, 0.5), milliseconds(75));
  EXPECT_EQ(BackoffDelay(policy, 3, 0.0), milliseconds(200));
  EXPECT_EQ(BackoffDelay(policy, 1'000'000, 0.999), milliseconds(999));
}

}  // namespace
}  // namespace lockstep::kube

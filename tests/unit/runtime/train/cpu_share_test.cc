#include "runtime/train/cpu_share.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(ProcessorsOfQuota, ReadsACgroupLimit) {
  EXPECT_EQ(ProcessorsOfQuota("200000 100000\n"), 2);
  EXPECT_EQ(ProcessorsOfQuota("250000 100000\n"), 2);
  EXPECT_EQ(ProcessorsOfQuota("25000 100000\n"), 1);  // a quarter of one is still one thread
  EXPECT_EQ(ProcessorsOfQuota("max 100000\n"), 0);
  EXPECT_EQ(ProcessorsOfQuota(""), 0);
  EXPECT_EQ(ProcessorsOfQuota("100000 0"), 0);
}

TEST(ThreadsPerRank, IsAtLeastOne) {
  EXPECT_GE(ThreadsPerRank(1), 1);
  EXPECT_EQ(ThreadsPerRank(100'000), 1);
  EXPECT_GE(ThreadsPerRank(0), 1);
}

}  // namespace
}  // namespace lockstep::train

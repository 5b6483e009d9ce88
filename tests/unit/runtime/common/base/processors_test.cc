#include "runtime/common/base/processors.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ProcessorsOfQuota, ReadsACgroupLimit) {
  EXPECT_EQ(ProcessorsOfQuota("200000 100000\n"), 2);
  EXPECT_EQ(ProcessorsOfQuota("250000 100000\n"), 2);
  EXPECT_EQ(ProcessorsOfQuota("25000 100000\n"), 1);  // a quarter of a processor still gives one thread
  EXPECT_EQ(ProcessorsOfQuota("max 100000\n"), 0);
  EXPECT_EQ(ProcessorsOfQuota(""), 0);
  EXPECT_EQ(ProcessorsOfQuota("100000 0"), 0);
}

TEST(ThreadsPerRank, DividesWhatTheContainerIsGiven) {
  EXPECT_EQ(ThreadsPerRank({.usable = 16}, 1), 16);
  EXPECT_EQ(ThreadsPerRank({.usable = 16}, 3), 5);
  EXPECT_EQ(ThreadsPerRank({.usable = 16, .requested = 4}, 2), 2);
  EXPECT_EQ(ThreadsPerRank({.usable = 16, .quota = 8, .requested = 4}, 2), 4)
      << "it may use more than it requests";
  EXPECT_EQ(ThreadsPerRank({.usable = 2, .quota = 8}, 1), 2);
  EXPECT_EQ(ThreadsPerRank({.usable = 2, .requested = 8}, 1), 2);
  EXPECT_EQ(ThreadsPerRank({.usable = 2}, 100), 1);
  EXPECT_EQ(ThreadsPerRank({.usable = 2}, 0), 2);
}

TEST(ProcessorsGiven, SeesThoseOfThisProcess) {
  EXPECT_GE(ProcessorsGiven(0).usable, 1);
  EXPECT_EQ(ProcessorsGiven(3).requested, 3);
}

}  // namespace
}  // namespace lockstep

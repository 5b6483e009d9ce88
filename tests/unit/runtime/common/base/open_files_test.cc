#include "runtime/common/base/open_files.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RaiseOpenFileLimit, TakesTheHardLimitAndRemembersWhatWasBefore) {
  rlimit start{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &start), 0);
  rlimit low = start;
  low.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);

  EXPECT_EQ(RaiseOpenFileLimit(), start.rlim_max);
  rlimit raised{};
  ::getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_EQ(raised.rlim_cur, start.rlim_max);
  EXPECT_EQ(OpenFileLimitAtStart().rlim_cur, 64U);

  ::setrlimit(RLIMIT_NOFILE, &start);
}

}  // namespace
}  // namespace lockstep

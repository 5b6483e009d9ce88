#include "runtime/common/base/once_per_key.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::FakeClock;

TEST(OncePerKeyTest, AKeyIsFirstOnce) {
  FakeClock clock;
  OncePerKey keys;
  EXPECT_TRUE(keys.IsFirst("a", clock.Steady()));
  EXPECT_TRUE(keys.IsFirst("b", clock.Steady()));
  clock.Advance(48h);
  EXPECT_FALSE(keys.IsFirst("a", clock.Steady()));
}

TEST(OncePerKeyTest, AStormHasAThousandFirstKeysInAnHour) {
  FakeClock clock;
  OncePerKey keys;
  int first = 0;
  for (int i = 0; i < 3000; ++i) first += keys.IsFirst(std::to_string(i), clock.Steady()) ? 1 : 0;
  EXPECT_EQ(first, 1000);
  clock.Advance(1h);
  EXPECT_TRUE(keys.IsFirst("3000", clock.Steady()));
}

}  // namespace
}  // namespace lockstep

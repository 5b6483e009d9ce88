#include "runtime/common/base/token_bucket.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace lockstep {
namespace {

using testing::FakeClock;

TEST(TokenBucketTest, GivesSoManyAtOnceAndThenSoManyPerSecond) {
  FakeClock clock;
  TokenBucket bucket(/*per_second=*/10, /*burst=*/2);
  EXPECT_EQ(bucket.Take(clock.Steady()), Milliseconds(0));
  EXPECT_EQ(bucket.Take(clock.Steady()), Milliseconds(0));
  EXPECT_EQ(bucket.Take(clock.Steady()), Milliseconds(100));
  EXPECT_EQ(bucket.Take(clock.Steady()), Milliseconds(200));
  clock.Advance(Milliseconds(60'000));
  EXPECT_EQ(bucket.Take(clock.Steady(), 3), Milliseconds(100)) << "no more than a burst is kept";
}

// As for the upload rate of a rank's checkpoints.
TEST(TokenBucketTest, WithoutABurstNothingIsFree) {
  FakeClock clock;
  TokenBucket bucket(/*per_second=*/1000, /*burst=*/0);
  Milliseconds waited{0};
  for (const double piece : {4000.0, 1.0, 0.5, 2500.0}) {
    const Milliseconds wait = bucket.Take(clock.Steady(), piece);
    clock.Advance(wait);
    waited += wait;
  }
  EXPECT_GE(waited, Milliseconds(6501));
  EXPECT_LE(waited, Milliseconds(6505));
  clock.Advance(Milliseconds(60'000));
  EXPECT_EQ(bucket.Take(clock.Steady(), 500), Milliseconds(500)) << "what was not sent is not made up for";
}

}  // namespace
}  // namespace lockstep

#include "runtime/train/saves/store_patience.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/fake_clock.h"

namespace lockstep::train {
namespace {

const Error kAway{ErrorCode::kUnavailable, "connection refused"};

class StorePatienceTest : public ::testing::Test {
 protected:
  testing::FakeClock clock_;
  std::vector<protocol::StoreUnavailable> reported_;
  std::vector<Milliseconds> pauses_;
  bool goes_on_ = true;
  StorePatience patience_{
      {.patience = Seconds(60),
       .clock = clock_,
       .report = [this](const protocol::StoreUnavailable& away) { reported_.push_back(away); },
       .pause =
           [this](Milliseconds time) {
             clock_.Advance(time);
             pauses_.push_back(time);
             return goes_on_;
           }}};
};

TEST_F(StorePatienceTest, AsksEverMoreSeldomUntilThePatienceIsAtItsEnd) {
  Result<void> awaited;
  while ((awaited = patience_.Await(kAway, "the last checkpoint")).ok()) {
  }
  EXPECT_EQ(awaited.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(awaited.error().message.find("spec.failurePolicy.storePatienceSeconds"), std::string::npos);
  EXPECT_NE(awaited.error().message.find("connection refused"), std::string::npos);
  ASSERT_GT(pauses_.size(), 5U);
  EXPECT_EQ(pauses_[0], Milliseconds(500));
  EXPECT_EQ(pauses_[1], Milliseconds(1'000));
  EXPECT_EQ(pauses_.back(), Milliseconds(10'000));
  EXPECT_EQ(reported_,
            (std::vector<protocol::StoreUnavailable>{{"the last checkpoint", "connection refused"}}))
      << "once";
}

TEST_F(StorePatienceTest, AnOutageBeginsWithTheFirstMissAndEndsWithTheFirstAnswer) {
  patience_.Answered();
  EXPECT_TRUE(reported_.empty()) << "nothing was missed";
  patience_.Missed(kAway, "the next checkpoint");
  clock_.Advance(Milliseconds(59'000));
  EXPECT_TRUE(patience_.Await(kAway, "the last checkpoint").ok());
  clock_.Advance(Milliseconds(1'000));
  EXPECT_FALSE(patience_.Await(kAway, "the last checkpoint").ok());
  patience_.Answered();
  EXPECT_TRUE(patience_.Await(kAway, "the last checkpoint").ok()) << "this is another outage";
  EXPECT_EQ(pauses_.back(), Milliseconds(500));
  EXPECT_EQ(reported_,
            (std::vector<protocol::StoreUnavailable>{{"the next checkpoint", "connection refused"},
                                                     {"the last checkpoint", "connection refused"},
                                                     {},
                                                     {"the last checkpoint", "connection refused"}}));
}

TEST_F(StorePatienceTest, AWaitEndsWithTheRound) {
  goes_on_ = false;
  EXPECT_EQ(patience_.Await(kAway, "the last checkpoint").error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace lockstep::train

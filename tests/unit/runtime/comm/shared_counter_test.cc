#include "runtime/comm/shared_counter.h"

#include <gtest/gtest.h>

#include <future>
#include <set>
#include <sstream>

#include "tests/support/forked_ranks.h"

namespace lockstep::comm {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

TEST(SharedCounter, GivesEachRankOtherNumbers) {
  constexpr int kWorld = 3;
  constexpr int kEach = 50;
  RoundConnector connector;
  auto ranks = StartRanks(kWorld, [&](int rank, LineChannel& parent) {
    auto communicator = connector.Enter(1, rank, kWorld);
    REQUIRE(communicator.ok());
    SharedCounter counter((*communicator)->store(), "numbers");
    std::string numbers;
    for (int i = 0; i < kEach; ++i) {
      const Result<int64_t> number = counter.Add(1, {});
      REQUIRE(number.ok());
      numbers += std::to_string(*number) + " ";
    }
    REQUIRE((*communicator)->Barrier().ok());
    const Result<int64_t> all = counter.Add(0, {});
    REQUIRE(all.ok() && *all == kWorld * kEach);
    parent.Send(numbers);
    REQUIRE((*communicator)->Barrier().ok());  // rank 0 serves the store
    return 0;
  });
  std::multiset<int64_t> numbers;
  for (auto& rank : ranks) {
    std::istringstream line(rank.channel().Receive(kPatience).value_or(""));
    for (int64_t number = 0; line >> number;) numbers.insert(number);
  }
  EXPECT_EQ(numbers.size(), static_cast<std::size_t>(kWorld * kEach));
  EXPECT_EQ(std::set<int64_t>(numbers.begin(), numbers.end()).size(), numbers.size());
  EXPECT_EQ(*numbers.rbegin(), kWorld * kEach - 1);
  ExpectAllSucceed(ranks);
}

// As a store whose machine is cut off.
class SilentStore final : public RoundStore {
 public:
  Result<void> Set(const std::string&, const std::string&) override { return {}; }
  Result<std::optional<std::string>> Get(const std::string&) override { return std::optional<std::string>(); }
  Result<int64_t> Add(const std::string&, int64_t) override {
    is_asked.set_value();
    released.wait();
    return Error{ErrorCode::kAborted, "cut off"};
  }

  std::promise<void> is_asked;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
};

TEST(SharedCounter, WaitsForASilentStoreOnlyUntilItIsStopped) {
  const auto store = std::make_shared<SilentStore>();
  {
    SharedCounter counter(store, "numbers");
    std::stop_source stop;
    auto added = std::async(std::launch::async, [&] { return counter.Add(1, stop.get_token()); });
    store->is_asked.get_future().wait();
    stop.request_stop();
    const Result<int64_t> outcome = added.get();
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().code, ErrorCode::kCancelled);
    const Result<int64_t> again = counter.Add(1, {});
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, ErrorCode::kAborted) << "nobody knows whether the first one counts";
  }
  store->release.set_value();
}

}  // namespace
}  // namespace lockstep::comm

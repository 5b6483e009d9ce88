#include "runtime/common/http/connection_ledger.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::http {
namespace {

constexpr std::size_t kManyFiles = 1'000'000;
const auto kStay = [] {};

TEST(ConnectionLedger, AnAddressOverItsLimitLeavesRoomForOthers) {
  ConnectionLedger ledger({.all = 10, .per_peer = 3, .untrusted_per_peer = 2}, kManyFiles);
  auto first = ledger.Admit("10.0.0.1", kStay);
  const auto second = ledger.Admit("10.0.0.1", kStay);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_FALSE(ledger.Admit("10.0.0.1", kStay).has_value()) << "two are not trusted";
  EXPECT_TRUE(ledger.Admit("10.0.0.2", kStay).has_value());
  first.Trust();
  first.Trust();
  const auto third = ledger.Admit("10.0.0.1", kStay);
  EXPECT_TRUE(third.has_value());
  EXPECT_FALSE(ledger.Admit("10.0.0.1", kStay).has_value()) << "three in all";
}

TEST(ConnectionLedger, AnEndFreesThePlace) {
  ConnectionLedger ledger({.all = 1, .per_peer = 1, .untrusted_per_peer = 1}, kManyFiles);
  for (int i = 0; i < 3; ++i) {
    auto place = ledger.Admit("10.0.0.1", kStay);
    ASSERT_TRUE(place.has_value());
    place.Trust();
    const ConnectionLedger::Place moved = std::move(place);
    EXPECT_FALSE(ledger.Admit("10.0.0.2", kStay).has_value()) << "there is one place";
  }
}

TEST(ConnectionLedger, AFullServerClosesTheOldestThatIsNotTrustedForANewOne) {
  ConnectionLedger ledger({.all = 4}, kManyFiles);
  std::vector<int> closed;
  std::vector<ConnectionLedger::Place> places;
  const auto connect = [&](int number) {
    auto place =
        ledger.Admit("10.0.0." + std::to_string(number), [&closed, number] { closed.push_back(number); });
    if (!place.has_value()) return false;
    places.push_back(std::move(place));
    return true;
  };
  for (int number = 0; number < 4; ++number) ASSERT_TRUE(connect(number));
  places[0].Trust();
  places[2].Trust();
  EXPECT_TRUE(connect(4));
  EXPECT_TRUE(connect(5));
  EXPECT_EQ(closed, (std::vector<int>{1, 3}));
  places[4].Trust();
  places[5].Trust();
  EXPECT_FALSE(connect(6)) << "all that stay are trusted";
  EXPECT_EQ(closed.size(), 2U);
}

TEST(ConnectionLedger, WaitsForThoseThatItClosesBeforeItClosesMore) {
  constexpr std::size_t kAll = 1'000;
  ConnectionLedger ledger({.all = kAll}, kManyFiles);
  std::vector<ConnectionLedger::Place> places;
  for (std::size_t i = 0; i < 2 * kAll; ++i) {
    auto place = ledger.Admit(std::to_string(i), kStay);
    if (place.has_value()) places.push_back(std::move(place));
  }
  EXPECT_GT(places.size(), kAll);
  EXPECT_LT(places.size(), kAll + 100) << "files that it leaves for other things";
}

TEST(ConnectionLedger, ReservesFilesForOtherUses) {
  ConnectionLedger ledger({}, 1'024);
  std::vector<ConnectionLedger::Place> places;
  for (int i = 0; i < 2'000; ++i) {
    auto place = ledger.Admit(std::to_string(i), kStay);
    if (place.has_value()) places.push_back(std::move(place));
  }
  EXPECT_GE(places.size(), 768U);
  EXPECT_LT(places.size(), 900U);
}

}  // namespace
}  // namespace lockstep::http

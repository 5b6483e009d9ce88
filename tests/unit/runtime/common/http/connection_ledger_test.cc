#include "runtime/common/http/connection_ledger.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::http {
namespace {

constexpr std::size_t kManyFiles = 1'000'000;

TEST(ConnectionLedger, AnAddressOverItsLimitLeavesRoomForOthers) {
  ConnectionLedger ledger({.all = 10, .per_peer = 3, .untrusted_per_peer = 2}, kManyFiles);
  auto first = ledger.Admit("10.0.0.1");
  const auto second = ledger.Admit("10.0.0.1");
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_FALSE(ledger.Admit("10.0.0.1").has_value()) << "two are not trusted";
  EXPECT_TRUE(ledger.Admit("10.0.0.2").has_value());
  first.Trust();
  first.Trust();
  const auto third = ledger.Admit("10.0.0.1");
  EXPECT_TRUE(third.has_value());
  EXPECT_FALSE(ledger.Admit("10.0.0.1").has_value()) << "three in all";
}

TEST(ConnectionLedger, AnEndFreesThePlace) {
  ConnectionLedger ledger({.all = 1, .per_peer = 1, .untrusted_per_peer = 1}, kManyFiles);
  for (int i = 0; i < 3; ++i) {
    auto place = ledger.Admit("10.0.0.1");
    ASSERT_TRUE(place.has_value());
    if (i == 1) place.Trust();
    const ConnectionLedger::Place moved = std::move(place);
    EXPECT_FALSE(ledger.Admit("10.0.0.2").has_value()) << "there is one place";
  }
}

TEST(ConnectionLedger, LeavesFilesForOtherThings) {
  ConnectionLedger ledger({}, 1'024);
  std::vector<ConnectionLedger::Place> places;
  for (int i = 0; i < 2'000; ++i) {
    auto place = ledger.Admit(std::to_string(i));
    if (place.has_value()) places.push_back(std::move(place));
  }
  EXPECT_EQ(places.size(), 768U);
}

}  // namespace
}  // namespace lockstep::http

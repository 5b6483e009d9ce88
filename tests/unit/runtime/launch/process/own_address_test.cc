#include "runtime/launch/process/own_address.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(OwnAddressTowards, IsOfTheFamilyOfThePeer) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto address = OwnAddressTowards(host);
    ASSERT_TRUE(address.ok()) << address.error().ToString();
    EXPECT_EQ(*address, host);
  }
}

// Where one is needed: tests/integration/machines, in which the name of each machine means 127.0.1.1.
TEST(InterfaceInPlaceOfName, IsThatOfAnAddressWhichOthersReach) {
  EXPECT_FALSE(InterfaceInPlaceOfName("127.0.0.1").has_value());
  EXPECT_FALSE(InterfaceInPlaceOfName("192.0.2.1").has_value()) << "an address of no machine (RFC 5737)";
}

}  // namespace
}  // namespace lockstep::launch

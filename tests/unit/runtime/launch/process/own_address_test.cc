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

}  // namespace
}  // namespace lockstep::launch

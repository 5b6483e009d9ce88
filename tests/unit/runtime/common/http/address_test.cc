#include "runtime/common/http/address.h"

#include <gtest/gtest.h>

namespace lockstep::http {
namespace {

TEST(JoinHostPort, PutsIpv6AddressesInBrackets) {
  EXPECT_EQ(JoinHostPort("node-1", 80), "node-1:80");
  EXPECT_EQ(JoinHostPort("10.0.0.7", 80), "10.0.0.7:80");
  EXPECT_EQ(JoinHostPort("fd00::1", 80), "[fd00::1]:80");
}

TEST(SplitHostPort, TakesWhatJoinHostPortWrites) {
  for (const char* host : {"", "node-1", "10.0.0.7", "fd00::1", "::"}) {
    const auto split = SplitHostPort(JoinHostPort(host, 8080));
    ASSERT_TRUE(split.ok()) << split.error().ToString();
    EXPECT_EQ(split->host, host);
    EXPECT_EQ(split->port, 8080);
  }
}

TEST(SplitHostPort, RefusesWhatIsAmbiguousOrNoPort) {
  for (const char* text : {"", "8080", "a:", "a:x", "a:-1", "a:65536", "::1:8080", "[::1]",
                           "[::1]:", "[a]:80", "[::1:80", "a]:80"}) {
    const auto split = SplitHostPort(text);
    ASSERT_FALSE(split.ok()) << text;
    EXPECT_NE(split.error().message.find("[::1]:8080"), std::string::npos) << split.error().message;
  }
}

TEST(HostOfUrl, IsWithoutBracketsAndPort) {
  EXPECT_EQ(HostOfUrl("https://a.b.svc:29400/x:y"), "a.b.svc");
  EXPECT_EQ(HostOfUrl("http://a"), "a");
  EXPECT_EQ(HostOfUrl("https://[fd00::1]:443"), "fd00::1");
  EXPECT_EQ(HostOfUrl("https://[fd00::1]"), "fd00::1");
}

}  // namespace
}  // namespace lockstep::http

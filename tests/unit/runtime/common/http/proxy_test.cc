#include "runtime/common/http/proxy.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::http {
namespace {

Environment Of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  };
}

TEST(ProxyFor, FollowsTheEnvironment) {
  const Environment environment = Of({{"HTTPS_PROXY", "http://proxy:3128"}, {"NO_PROXY", "10.96.0.1, .svc"}});
  EXPECT_EQ(ProxyFor("https://api.example:443/x", environment), "http://proxy:3128");
  EXPECT_EQ(ProxyFor("http://api.example/x", environment), "");
  EXPECT_EQ(ProxyFor("https://10.96.0.1:443", environment), "");
  EXPECT_EQ(ProxyFor("https://lockstep-rendezvous.ns.svc:29400", environment), "");
  EXPECT_EQ(ProxyFor("https://127.0.0.1:6443", environment), "");
}

TEST(ProxyFor, LeavesOutWholeNetworks) {
  const Environment environment =
      Of({{"http_proxy", "http://proxy:3128"}, {"no_proxy", "192.168.7.9/16,fd00:1::/32, bad/8,1.2.3.4/99"}});
  for (const char* near : {"http://192.168.200.1:9000", "http://[fd00:1:2::3]:9000/x"})
    EXPECT_EQ(ProxyFor(near, environment), "") << near;
  for (const char* far :
       {"http://192.169.0.1", "http://[fd00:2::3]", "http://1.2.3.4", "http://name.example"})
    EXPECT_EQ(ProxyFor(far, environment), "http://proxy:3128") << far;
}

}  // namespace
}  // namespace lockstep::http

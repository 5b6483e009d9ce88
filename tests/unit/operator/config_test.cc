#include "operator/config.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

Result<ParsedConfig> Parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "lockstep-operator");
  return ParseConfig(static_cast<int>(flags.size()), flags.data());
}

TEST(OperatorConfig, TakesTheFlagsOfTheChart) {
  const auto parsed =
      Parse({"--leader-elect", "--lease-name=a-leader", "--namespace=system", "--watch-namespaces=team,other",
             "--metrics-address=0.0.0.0:8080", "--rendezvous-address=0.0.0.0:29400",
             "--rendezvous-url=https://a-rendezvous.system.svc:29400", "--tls-secret=a-tls", "--workers=8",
             "--log-level=debug", "--managed-by=example.com/lockstep"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().ToString();
  EXPECT_TRUE(parsed->config.leader_elect);
  EXPECT_EQ(parsed->config.watch_namespaces, (std::vector<std::string>{"team", "other"}));
  EXPECT_EQ(parsed->config.tls_secret, "a-tls");
  EXPECT_EQ(parsed->config.managed_by, "example.com/lockstep");
  EXPECT_EQ(parsed->config.workers, 8);
}

TEST(OperatorConfig, TakesTheLastOfAFlagThatIsRepeated) {
  const auto parsed = Parse({"--rendezvous-url=http://x", "--workers=4", "--workers=8"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().ToString();
  EXPECT_EQ(parsed->config.workers, 8);
}

TEST(OperatorConfig, RefusesWhatCannotWork) {
  const struct {
    std::vector<const char*> flags;
    std::string says;
  } cases[] = {
      {{}, "--rendezvous-url"},
      {{"--rendezvous-url=ftp://x"}, "must begin with https://"},
      {{"--rendezvous-url=https://x"}, "--tls-secret or --certificate-secret is required"},
      {{"--rendezvous-url=http://x", "--tls-secret=s"}, "--tls-secret needs an https://"},
      {{"--rendezvous-url=http://x", "--certificate-secret=s"}, "--certificate-secret needs an https://"},
      {{"--rendezvous-url=https://x", "--tls-secret=s", "--certificate-secret=t"}, "exclude each other"},
      {{"--rendezvous-url=https://x", "--tls-secret=s", "--certificate-overlap-seconds=-1"},
       "--certificate-overlap-seconds must be"},
      {{"--rendezvous-url=http://x", "--workers=0"}, "--workers must be from 1"},
      {{"--rendezvous-url=http://x", "--log-level=loud"}, "log-level"},
      {{"--rendezvous-url=http://x", "--managed-by=mine"}, "--managed-by must be a name with a domain"},
      {{"--rendezvous-url=http://x", "--watch-namespaces=a", "--namespace-selector=b"}, "exclude each other"},
      {{"--rendezvous-url=http://x", "--what"}, "unknown flag \"--what\""},
      {{"--rendezvous-url=http://x", "--leader-elct"},
       "unknown flag \"--leader-elct\": did you mean \"--leader-elect\"?"},
      {{"--rendezvous-url=http://x", "--kube-api-qps=0"}, "--kube-api-qps"},
      {{"--rendezvous-url=http://x", "--lease-renew-deadline-seconds=15"}, "lease timings must satisfy"},
  };
  for (const auto& test : cases) {
    const auto parsed = Parse(test.flags);
    ASSERT_FALSE(parsed.ok()) << test.says;
    EXPECT_NE(parsed.error().message.find(test.says), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace lockstep

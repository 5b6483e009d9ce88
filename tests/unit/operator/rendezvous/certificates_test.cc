#include "operator/rendezvous/certificates.h"

#include <gtest/gtest.h>

#include "operator/kube/base64.h"
#include "operator/rendezvous/x509.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/http/server.h"
#include "tests/support/fake_kube.h"

#include <filesystem>

#include "runtime/common/base/file.h"

namespace lockstep::rendezvous {
namespace {

const WallTime kNow = SystemClock().Now();
const std::vector<std::string> kNames = {"a-rendezvous.system.svc", "localhost", "127.0.0.1"};
const kube::ObjectKey kSecret{"system", "tls"};

TEST(ServerIdentity, IsGoodForItsNamesAndTenYears) {
  const auto identity = MakeServerIdentity(kNames, kNow);
  ASSERT_TRUE(identity.ok()) << identity.error().ToString();
  EXPECT_EQ(WhyUnusable(*identity, kNames, kNow), "");
  EXPECT_EQ(WhyUnusable(*identity, kNames, kNow + std::chrono::hours(24 * 365 * 9)), "");
  EXPECT_NE(WhyUnusable(*identity, kNames, kNow + std::chrono::hours(24 * 365 * 10)), "");
  EXPECT_NE(WhyUnusable(*identity, {"other.svc"}, kNow), "");
}

TEST(ServerIdentity, TheNamesFollowTheUrl) {
  EXPECT_EQ(DnsNamesOf("https://a.system.svc:29400"),
            (std::vector<std::string>{"a.system.svc", "a.system.svc.cluster.local", "localhost"}));
  EXPECT_EQ(DnsNamesOf("https://127.0.0.1:1"), (std::vector<std::string>{"127.0.0.1", "localhost"}));
  EXPECT_EQ(DnsNamesOf("https://[fd00::1]:29400"), (std::vector<std::string>{"fd00::1", "localhost"}));
}

TEST(EnsureServerIdentity, TheNextLeaderServesTheSame) {
  testing::FakeKube kube;
  const auto first = EnsureServerIdentity(kube, kSecret, kNames, kNow);
  ASSERT_TRUE(first.ok()) << first.error().ToString();
  const auto second = EnsureServerIdentity(kube, kSecret, kNames, kNow);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first->certificate, second->certificate);
  EXPECT_EQ(kube.writes().size(), 1U);
}

TEST(EnsureServerIdentity, AFasterOperatorWins) {
  testing::FakeKube kube;
  testing::FakeKube other;
  const auto theirs = EnsureServerIdentity(other, kSecret, kNames, kNow);
  ASSERT_TRUE(theirs.ok());
  bool first = true;
  kube.fault = [&](const std::string&, const std::string&, const auto&) -> std::optional<Error> {
    if (!std::exchange(first, false)) return std::nullopt;
    EXPECT_TRUE(kube.Create(kube::kSecrets, *other.Get(kube::kSecrets, kSecret)).ok());
    return std::nullopt;  // our own write then meets AlreadyExists
  };
  const auto ours = EnsureServerIdentity(kube, kSecret, kNames, kNow);
  ASSERT_TRUE(ours.ok()) << ours.error().ToString();
  EXPECT_EQ(ours->certificate, theirs->certificate);
}

TEST(EnsureServerIdentity, ReplacesWhatCannotBeUsed) {
  testing::FakeKube kube;
  ASSERT_TRUE(kube.Create(kube::kSecrets, {{"metadata", {{"namespace", "system"}, {"name", "tls"}}},
                                           {"type", "kubernetes.io/tls"},
                                           {"data", {{"tls.crt", kube::EncodeBase64("rubbish")}}}})
                  .ok());
  const auto identity = EnsureServerIdentity(kube, kSecret, kNames, kNow);
  ASSERT_TRUE(identity.ok()) << identity.error().ToString();
  EXPECT_EQ(WhyUnusable(*identity, kNames, kNow), "");
}

class ServedIdentity : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { http::InitializeHttpThreads(2); }
};

TEST_F(ServedIdentity, IsGoodForAnIpv6Address) {
  const auto identity = MakeServerIdentity({"::1"}, kNow);
  const auto other = MakeServerIdentity({"fd00::2"}, kNow);
  ASSERT_TRUE(identity.ok() && other.ok());
  std::string folder = (std::filesystem::temp_directory_path() / "certificates-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(WriteFile(folder + "/ca", identity->ca + other->ca).ok());
  for (const auto& [served, is_trusted] : {std::pair(*identity, true), std::pair(*other, false)}) {
    const auto server = http::StartServer(
        {.address = "[::1]:0", .certificate_pem = served.certificate, .key_pem = served.key},
        [](const auto&, const auto& respond) { respond(http::TextResponse(200, "ok")); });
    ASSERT_TRUE(server.ok()) << server.error().ToString();
    const auto client = http::MakeTransport(
        {.url = "https://[::1]:" + std::to_string((*server)->port()), .ca_file = folder + "/ca"});
    const auto answer = (*client)->Send({.target = "/"}, {});
    EXPECT_EQ(answer.ok(), is_trusted) << answer.error().ToString();
  }
  std::filesystem::remove_all(folder);
}

// The certificates as OpenSSL's own verification sees them, on a real connection.
TEST_F(ServedIdentity, IsTrustedByAClientThatKnowsTheCa) {
  const auto identity = MakeServerIdentity(kNames, kNow);
  const auto stranger = MakeServerIdentity(kNames, kNow);
  ASSERT_TRUE(identity.ok() && stranger.ok());
  const auto server =
      http::StartServer({.certificate_pem = identity->certificate, .key_pem = identity->key},
                        [](const auto&, const auto& respond) { respond(http::TextResponse(200, "ok")); });
  ASSERT_TRUE(server.ok());
  std::string folder = (std::filesystem::temp_directory_path() / "certificates-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(WriteFile(folder + "/ca", identity->ca).ok());
  ASSERT_TRUE(WriteFile(folder + "/other", stranger->ca).ok());
  const std::string url = "https://localhost:" + std::to_string((*server)->port());
  auto trusting = http::MakeTransport({.url = url, .ca_file = folder + "/ca"});
  auto doubting = http::MakeTransport({.url = url, .ca_file = folder + "/other"});
  const auto answer = (*trusting)->Send({.target = "/"}, {});
  EXPECT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_FALSE((*doubting)->Send({.target = "/"}, {}).ok());
  auto named = http::MakeTransport({.url = url, .ca_file = folder + "/ca", .server_name = kNames[0]});
  auto misnamed = http::MakeTransport({.url = url, .ca_file = folder + "/ca", .server_name = "elsewhere"});
  const auto by_name = (*named)->Send({.target = "/"}, {});
  EXPECT_TRUE(by_name.ok()) << by_name.error().ToString();
  EXPECT_FALSE((*misnamed)->Send({.target = "/"}, {}).ok());
  ::setenv("SSL_CERT_FILE", (folder + "/ca").c_str(), 1);
  EXPECT_FALSE((*doubting)->Send({.target = "/"}, {}).ok()) << "only those of the file may vouch for it";
  ::unsetenv("SSL_CERT_FILE");
  ASSERT_TRUE(WriteFile(folder + "/other", identity->ca).ok());
  const auto rotated = (*doubting)->Send({.target = "/"}, {});
  EXPECT_TRUE(rotated.ok()) << "the file is read again when it changes: " << rotated.error().ToString();
  std::filesystem::remove_all(folder);
}

// More than a socket takes at once, in both directions.
TEST_F(ServedIdentity, CarriesLargeBodies) {
  const auto identity = MakeServerIdentity(kNames, kNow);
  ASSERT_TRUE(identity.ok());
  constexpr std::size_t kRequestBytes = 900'000;
  const std::string large(6'000'000, 'x');
  const auto server = http::StartServer(
      {.certificate_pem = identity->certificate,
       .key_pem = identity->key,
       .limits = {.untrusted_body_bytes = kRequestBytes}},
      [&](const http::ServerRequest& request, const http::Responder& respond) {
        respond(http::TextResponse(request.body.size() == kRequestBytes ? 200 : 400, large));
      });
  ASSERT_TRUE(server.ok());
  std::string folder = (std::filesystem::temp_directory_path() / "certificates-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(WriteFile(folder + "/ca", identity->ca).ok());
  const auto client = http::MakeTransport(
      {.url = "https://localhost:" + std::to_string((*server)->port()), .ca_file = folder + "/ca"});
  for (int turn = 0; turn < 3; ++turn) {
    const auto answer =
        (*client)->Send({.method = "POST", .target = "/", .body = std::string(kRequestBytes, 'y')}, {});
    ASSERT_TRUE(answer.ok()) << answer.error().ToString();
    EXPECT_EQ(answer->status, 200);
    EXPECT_TRUE(answer->body == large);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::rendezvous

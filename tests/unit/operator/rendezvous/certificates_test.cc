#include "operator/rendezvous/certificates.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/http/server.h"
#include "tests/support/fake_kube.h"

namespace lockstep::rendezvous {
namespace {

const kube::ObjectKey kSecret{"ns", "tls"};

class CertificatesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { http::InitializeHttpThreads(2); }
  void SetUp() override { ca_file_ = ::testing::TempDir() + "ca-" + RandomHex(8) + ".pem"; }
  void TearDown() override { std::filesystem::remove(ca_file_); }

  // A GET over TLS that trusts `ca` alone.
  Result<http::Response> GetTrusting(const std::string& ca, const ServerIdentity& served) {
    LOCKSTEP_TRY(const auto server,
                 http::StartServer({.certificate_pem = served.certificate_pem, .key_pem = served.key_pem},
                                   [](http::ServerRequest, http::Responder respond) {
                                     respond(http::TextResponse(200, "secret"));
                                   }));
    LOCKSTEP_TRY(WriteFile(ca_file_, ca));
    LOCKSTEP_TRY(const auto transport,
                 http::MakeTransport(
                     {.url = "https://localhost:" + std::to_string(server->port()), .ca_file = ca_file_}));
    return transport->Send({.target = "/"}, {});
  }

  std::string ca_file_;
};

TEST_F(CertificatesTest, WorkersThatTrustTheAuthorityReachTheServer) {
  const auto identity = MakeServerIdentity({"localhost", "lockstep-rendezvous.ns.svc"});
  ASSERT_TRUE(identity.ok());
  const auto answer = GetTrusting(identity->ca_pem, *identity);
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_EQ(answer->body, "secret");
}

TEST_F(CertificatesTest, AnotherAuthorityIsNotTrusted) {
  EXPECT_FALSE(
      GetTrusting(MakeServerIdentity({"localhost"})->ca_pem, *MakeServerIdentity({"localhost"})).ok());
}

TEST_F(CertificatesTest, AnotherNameIsNotTrusted) {
  const auto identity = MakeServerIdentity({"elsewhere"});
  EXPECT_FALSE(GetTrusting(identity->ca_pem, *identity).ok());
}

TEST_F(CertificatesTest, TheNextLeaderServesTheSameIdentity) {
  testing::FakeKube kube;
  const auto first = EnsureServerIdentity(kube, kSecret, {"localhost"});
  const auto second = EnsureServerIdentity(kube, kSecret, {"localhost"});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->certificate_pem, second->certificate_pem);
  EXPECT_EQ(first->key_pem, second->key_pem);
}

TEST_F(CertificatesTest, ADamagedSecretIsNamed) {
  testing::FakeKube kube;
  ASSERT_TRUE(kube.Create(kube::kSecrets, {{"metadata", {{"namespace", "ns"}, {"name", "tls"}}}}).ok());
  const auto identity = EnsureServerIdentity(kube, kSecret, {"localhost"});
  ASSERT_FALSE(identity.ok());
  EXPECT_EQ(identity.error().code, ErrorCode::kDataLoss);
  EXPECT_NE(identity.error().message.find("ns/tls"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::rendezvous

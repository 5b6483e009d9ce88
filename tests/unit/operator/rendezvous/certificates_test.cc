#include "operator/rendezvous/certificates.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "operator/kube/base64.h"
#include "operator/rendezvous/x509.h"
#include "runtime/common/base/file.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/http/server.h"
#include "tests/support/eventually.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

const WallTime kNow = SystemClock().Now();
const std::vector<std::string> kNames = {"a-rendezvous.system.svc", "localhost", "127.0.0.1"};
const kube::ObjectKey kSecret{"system", "tls"};
constexpr std::chrono::hours kLife{24 * 365 * 10};  // of each certificate made here
constexpr auto kOverlap = 10min;

template <typename T>
T Made(Result<T> made) {
  return std::move(made).value();
}

// An authority that issues more than one certificate.
class Authority {
 public:
  explicit Authority(WallTime now = kNow)
      : key_(Made(x509::MakeKey())), certificate_(Made(x509::MakeAuthority("authority", key_, now))) {}

  [[nodiscard]] ServerIdentity Issue(const std::vector<std::string>& names = kNames,
                                     WallTime now = kNow) const {
    const x509::Key key = Made(x509::MakeKey());
    const x509::Certificate server = Made(x509::MakeServerCertificate(names, key, certificate_, key_, now));
    return {x509::ToPem(certificate_), x509::ToPem(server), x509::ToPem(key)};
  }
  [[nodiscard]] std::string pem() const { return x509::ToPem(certificate_); }

 private:
  x509::Key key_;
  x509::Certificate certificate_;
};

Result<ServerIdentity> ReadBack(const ServerIdentity& identity, WallTime now = kNow) {
  return IdentityFromSecret(SecretFrom(kSecret, identity), kNames, now);
}

TEST(ServerIdentity, IsGoodForItsNamesAndTenYears) {
  const auto made = MakeServerIdentity(kNames, kNow);
  ASSERT_TRUE(made.ok()) << made.error().ToString();
  EXPECT_EQ(*ReadBack(*made), *made);
  EXPECT_TRUE(ReadBack(*made, kNow + kLife - 24h).ok());
  EXPECT_FALSE(ReadBack(*made, kNow + kLife + 24h).ok());
}

TEST(ServerIdentity, TheNamesFollowTheUrl) {
  EXPECT_EQ(DnsNamesOf("https://a.system.svc:29400"),
            (std::vector<std::string>{"a.system.svc", "a.system.svc.cluster.local", "localhost"}));
  EXPECT_EQ(DnsNamesOf("https://127.0.0.1:1"), (std::vector<std::string>{"127.0.0.1", "localhost"}));
  EXPECT_EQ(DnsNamesOf("https://[fd00::1]:29400"), (std::vector<std::string>{"fd00::1", "localhost"}));
}

TEST(IdentityFromSecret, NamesTheKeyThatWorkersWouldNotAccept) {
  const Authority authority;
  const ServerIdentity good = authority.Issue();
  const Json secret = SecretFrom(kSecret, good);
  const auto with = [&](const char* key, const std::string& text) {
    Json changed = secret;
    changed["data"][key] = kube::EncodeBase64(text);
    return changed;
  };
  const auto without = [&](const char* key) {
    Json changed = secret;
    changed["data"].erase(key);
    return changed;
  };
  const struct {
    const char* name;
    Json secret;
    std::string says;
  } cases[] = {
      {"no data", Json::object(), "tls.crt is missing or empty"},
      {"no key", without("tls.key"), "tls.key is missing or empty"},
      {"no authority", without("ca.crt"), "ca.crt is missing or empty"},
      {"empty, as cert-manager makes it first", with("tls.crt", ""), "tls.crt is missing or empty"},
      {"no certificate", with("tls.crt", "rubbish"), "tls.crt is not a list of certificates in PEM form"},
      {"half a certificate", with("tls.crt", good.certificate + good.certificate.substr(0, 100)),
       "tls.crt is not a list of certificates in PEM form"},
      {"no private key", with("tls.key", good.certificate), "tls.key is not a private key in PEM form"},
      {"another's key", with("tls.key", authority.Issue().key),
       "tls.key is not the key of the certificate in tls.crt"},
      {"another's authority", with("ca.crt", Authority().pem()),
       "tls.crt is not accepted by a worker that trusts ca.crt: "},
      {"another name", SecretFrom(kSecret, authority.Issue({"other.svc"})),
       "tls.crt is not for the name a-rendezvous.system.svc"},
      {"expired", SecretFrom(kSecret, authority.Issue(kNames, kNow - kLife - 24h)), "tls.crt expired at 20"},
      {"too early", SecretFrom(kSecret, authority.Issue(kNames, kNow + 24h)),
       "tls.crt is not valid before 20"},
      {"expired authority", SecretFrom(kSecret, Authority(kNow - kLife - 24h).Issue()),
       "trusts ca.crt: certificate has expired"},
  };
  for (const auto& test : cases) {
    const auto read = IdentityFromSecret(test.secret, kNames, kNow);
    ASSERT_FALSE(read.ok()) << test.name;
    EXPECT_NE(read.error().message.find(test.says), std::string::npos)
        << test.name << ": " << read.error().message;
  }
}

TEST(IdentityFromSecret, TakesSeveralAuthorities) {
  ServerIdentity identity = Authority().Issue();
  identity.ca = Authority().pem() + identity.ca;
  EXPECT_TRUE(ReadBack(identity).ok());
}

TEST(Follow, ServesTheFirstAtOnce) {
  const ServerIdentity first = Authority().Issue();
  const Certificates now = Follow({}, first, kNow, kOverlap);
  EXPECT_EQ(now, Certificates{.served = first});
  EXPECT_EQ(TrustedWith(now), first.ca);
  EXPECT_EQ(TrustedWith({}), "");
}

TEST(Follow, ServesARenewedOneOfTheSameAuthorityAtOnce) {
  const Authority authority;
  const ServerIdentity renewed = authority.Issue();
  EXPECT_EQ(Follow({.served = authority.Issue()}, renewed, kNow, kOverlap), Certificates{.served = renewed});
}

TEST(Follow, ServesOneAtOnceThatWorkersAlreadyTrust) {
  const Authority other;
  ServerIdentity first = Authority().Issue();
  first.ca += other.pem();
  const ServerIdentity second = other.Issue();
  EXPECT_EQ(Follow({.served = first}, second, kNow, kOverlap), Certificates{.served = second});
}

TEST(Follow, AnnouncesAnotherAuthorityBeforeItServesItsCertificate) {
  const ServerIdentity first = Authority().Issue();
  const ServerIdentity second = Authority().Issue();
  const Certificates announced = Follow({.served = first}, second, kNow, kOverlap);
  EXPECT_EQ(announced, (Certificates{.served = first, .next = second, .next_from = kNow + kOverlap}));
  EXPECT_EQ(TrustedWith(announced), first.ca + second.ca);
  EXPECT_EQ(Follow(announced, second, kNow + kOverlap - 1s, kOverlap), announced);
  const Certificates after = Follow(announced, second, kNow + kOverlap, kOverlap);
  EXPECT_EQ(after, Certificates{.served = second});
  EXPECT_EQ(TrustedWith(after), second.ca);
}

TEST(Follow, AnnouncesAThirdForAsLong) {
  const ServerIdentity first = Authority().Issue();
  const ServerIdentity third = Authority().Issue();
  const Certificates announced = Follow({.served = first}, Authority().Issue(), kNow, kOverlap);
  EXPECT_EQ(Follow(announced, third, kNow + 5min, kOverlap),
            (Certificates{.served = first, .next = third, .next_from = kNow + 5min + kOverlap}));
}

TEST(Follow, ForgetsWhatWasAnnouncedWhereTheFirstComesBack) {
  const ServerIdentity first = Authority().Issue();
  const Certificates announced = Follow({.served = first}, Authority().Issue(), kNow, kOverlap);
  EXPECT_EQ(Follow(announced, first, kNow + 1s, kOverlap), Certificates{.served = first});
}

TEST(Follow, ServesTheNextBeforeTheOneThatIsServedExpires) {
  const WallTime made = kNow - kLife;
  const ServerIdentity first = Authority(made + 5min).Issue(kNames, made + 5min);
  const ServerIdentity second = Authority().Issue();
  const Certificates announced = Follow({.served = first}, second, kNow, kOverlap);
  EXPECT_EQ(announced.served, first);
  EXPECT_EQ(std::chrono::round<std::chrono::minutes>(announced.next_from - kNow), 4min);
  EXPECT_EQ(Follow(announced, second, announced.next_from, kOverlap), Certificates{.served = second});
  EXPECT_EQ(Follow({.served = first}, second, kNow + 1h, kOverlap), Certificates{.served = second})
      << "it expired between two reads";
}

TEST(TrustedWith, AddsTheAuthoritiesThatOtherReplicasServe) {
  const ServerIdentity first = Authority().Issue();
  const ServerIdentity second = Authority().Issue();
  EXPECT_EQ(TrustedWith({.served = second}, {first.ca, second.ca}), second.ca + first.ca);
  EXPECT_EQ(TrustedWith({.served = first, .next = second}, {first.ca, second.ca}), first.ca + second.ca);
}

TEST(TrustedWith, SeparatesCertificatesByLines) {
  ServerIdentity first = Authority().Issue();
  first.ca.pop_back();  // the newline
  const Authority second;
  const auto trusted =
      x509::CertificatesFromPem(TrustedWith({.served = first, .next = second.Issue(), .next_from = kNow}));
  ASSERT_TRUE(trusted.ok()) << trusted.error().ToString();
  EXPECT_EQ(trusted->size(), 2U);
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
    http::ServerCertificate certificate;
    ASSERT_TRUE(certificate.Use(served.certificate, served.key).ok());
    const auto server =
        http::StartServer({.address = "[::1]:0", .certificate = &certificate},
                          [](const auto&, const auto& respond) { respond(http::TextResponse(200, "ok")); });
    ASSERT_TRUE(server.ok()) << server.error().ToString();
    const auto client = http::MakeTransport(
        {.url = "https://[::1]:" + std::to_string((*server)->port()), .ca_file = folder + "/ca"});
    const auto answer = (*client)->Send({.target = "/"}, {});
    EXPECT_EQ(answer.ok(), is_trusted) << answer.error().ToString();
  }
  std::filesystem::remove_all(folder);
}

// OpenSSL verifies the certificates on a real connection.
TEST_F(ServedIdentity, IsTrustedByAClientWithTheCa) {
  const auto identity = MakeServerIdentity(kNames, kNow);
  const auto stranger = MakeServerIdentity(kNames, kNow);
  ASSERT_TRUE(identity.ok() && stranger.ok());
  http::ServerCertificate certificate;
  ASSERT_TRUE(certificate.Use(identity->certificate, identity->key).ok());
  const auto server = http::StartServer({.certificate = &certificate}, [](const auto&, const auto& respond) {
    respond(http::TextResponse(200, "ok"));
  });
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

// More than a socket buffer holds, in both directions.
TEST_F(ServedIdentity, CarriesLargeBodies) {
  const ServerIdentity identity = Authority().Issue();
  http::ServerCertificate certificate;
  ASSERT_TRUE(certificate.Use(identity.certificate, identity.key).ok());
  constexpr std::size_t kRequestBytes = 900'000;
  const std::string large(6'000'000, 'x');
  const auto server = http::StartServer(
      {.certificate = &certificate, .limits = {.untrusted_body_bytes = kRequestBytes}},
      [&](const http::ServerRequest& request, const http::Responder& respond) {
        respond(http::TextResponse(request.body.size() == kRequestBytes ? 200 : 400, large));
      });
  ASSERT_TRUE(server.ok());
  std::string folder = (std::filesystem::temp_directory_path() / "certificates-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(WriteFile(folder + "/ca", identity.ca).ok());
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

TEST_F(ServedIdentity, IsReplacedWithoutBreakingConnections) {
  const ServerIdentity first = Authority().Issue();
  const ServerIdentity second = Authority().Issue();
  http::ServerCertificate certificate;
  std::mutex mutex;
  http::Responder held;
  const auto server = http::StartServer(
      {.certificate = &certificate}, [&](const http::ServerRequest& request, const http::Responder& respond) {
        if (request.path != "/held") return respond(http::TextResponse(200, "ok"));
        const std::lock_guard lock(mutex);
        held = respond;
      });
  ASSERT_TRUE(server.ok()) << server.error().ToString();
  std::string folder = (std::filesystem::temp_directory_path() / "certificates-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(WriteFile(folder + "/first", first.ca).ok());
  ASSERT_TRUE(WriteFile(folder + "/second", second.ca).ok());
  const auto ask = [&](const char* ca, const char* path = "/") {
    const auto client = http::MakeTransport(
        {.url = "https://localhost:" + std::to_string((*server)->port()), .ca_file = folder + "/" + ca});
    return (*client)->Send({.target = path, .timeout = 10min}, {});
  };
  EXPECT_FALSE(ask("first").ok()) << "there is no certificate yet";
  ASSERT_TRUE(certificate.Use(first.certificate, first.key).ok());
  EXPECT_TRUE(ask("first").ok());
  Result<http::Response> late = Error{};
  std::jthread poll([&] { late = ask("first", "/held"); });
  EXPECT_TRUE(testing::Eventually([&] {
    const std::lock_guard lock(mutex);
    return held != nullptr;
  }));
  EXPECT_FALSE(certificate.Use(second.certificate, first.key).ok());
  EXPECT_TRUE(ask("first").ok()) << "what cannot be used changes nothing";
  ASSERT_TRUE(certificate.Use(second.certificate, second.key).ok());
  EXPECT_FALSE(ask("first").ok());
  EXPECT_TRUE(ask("second").ok());
  held(http::TextResponse(200, "late"));
  poll.join();
  ASSERT_TRUE(late.ok()) << late.error().ToString();
  EXPECT_EQ(late->body, "late");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::rendezvous

#include "operator/rendezvous/certificate_keeper.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/kube/base64.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

const kube::ObjectKey kTls{"system", "tls"};
constexpr const char* kUrl = "https://a-rendezvous.system.svc:29400";
constexpr auto kAnnounced = 10min;

class CertificateKeeperTest : public ::testing::Test {
 protected:
  CertificateKeeper Keeper(SecretKeeper kept_by) {
    return {kube_,
            clock_,
            {.secret = kTls,
             .kept_by = kept_by,
             .rendezvous_url = kUrl,
             .overlap = kAnnounced,
             .of_others = [this] { return of_others_; }},
            [this] { ++changes_; }};
  }
  // As cert-manager issues it: only with the name that workers use.
  ServerIdentity Issue() {
    const ServerIdentity identity = *MakeServerIdentity({"a-rendezvous.system.svc"}, clock_.Now());
    Put(SecretFrom(kTls, identity));
    return identity;
  }
  void Put(Json secret) {
    const auto current = kube_.Get(kube::kSecrets, kTls);
    if (!current.ok()) {
      ASSERT_TRUE(kube_.Create(kube::kSecrets, secret).ok());
      return;
    }
    secret["metadata"]["resourceVersion"] = current->at("metadata").at("resourceVersion");
    ASSERT_TRUE(kube_.Replace(kube::kSecrets, secret).ok());
  }
  ServerIdentity Stored() {
    return *IdentityFromSecret(*kube_.Get(kube::kSecrets, kTls), {"a-rendezvous.system.svc"}, clock_.Now());
  }

  testing::FakeKube kube_;
  testing::FakeClock clock_;
  int changes_ = 0;
  std::set<std::string> of_others_;
};

TEST_F(CertificateKeeperTest, MakesItsOwnAndTheNextLeaderServesTheSame) {
  auto first = Keeper(SecretKeeper::kOperator);
  EXPECT_EQ(first.WhyNoneIsServed(), "no certificate yet: Secret system/tls has not been read");
  first.Look();
  EXPECT_EQ(first.WhyNoneIsServed(), "");
  EXPECT_EQ(changes_, 1);
  auto second = Keeper(SecretKeeper::kOperator);
  second.Look();
  EXPECT_EQ(first.Trusted(), second.Trusted());
  EXPECT_EQ(kube_.writes().size(), 1U);
}

TEST_F(CertificateKeeperTest, AFasterOperatorWins) {
  std::optional<ServerIdentity> theirs;
  kube_.fault = [&](const std::string&, const std::string&, const auto&) -> std::optional<Error> {
    if (theirs) return std::nullopt;
    theirs = *MakeServerIdentity(DnsNamesOf(kUrl), clock_.Now());
    EXPECT_TRUE(kube_.Create(kube::kSecrets, SecretFrom(kTls, *theirs)).ok());
    return std::nullopt;  // our own write then fails with AlreadyExists
  };
  auto keeper = Keeper(SecretKeeper::kOperator);
  keeper.Look();
  EXPECT_EQ(keeper.Trusted(), theirs->ca);
}

TEST_F(CertificateKeeperTest, ReplacesItsOwnThatCannotBeUsed) {
  Put({{"metadata", {{"namespace", kTls.name_space}, {"name", kTls.name}}},
       {"type", "kubernetes.io/tls"},
       {"data", {{"tls.crt", kube::EncodeBase64("rubbish")}}}});
  auto keeper = Keeper(SecretKeeper::kOperator);
  keeper.Look();
  EXPECT_EQ(keeper.WhyNoneIsServed(), "");
  EXPECT_EQ(keeper.Trusted(), Stored().ca);
}

TEST_F(CertificateKeeperTest, SaysWhyItsOwnCannotBeWritten) {
  kube_.fault = [](const std::string&, const std::string&, const auto&) -> std::optional<Error> {
    return Error{ErrorCode::kForbidden, "no right to create it"};
  };
  auto keeper = Keeper(SecretKeeper::kOperator);
  keeper.Look();
  EXPECT_EQ(keeper.WhyNoneIsServed(), "no certificate yet: Secret system/tls: no right to create it");
}

// Its authority cannot issue another one.
TEST_F(CertificateKeeperTest, AnnouncesTheAuthorityOfItsRenewedOne) {
  auto keeper = Keeper(SecretKeeper::kOperator);
  keeper.Look();
  const std::string first = keeper.Trusted();
  clock_.Advance(24h * (365 * 10 - 31));
  keeper.Look();
  EXPECT_EQ(kube_.writes().size(), 1U);
  clock_.Advance(48h);
  keeper.Look();
  EXPECT_EQ(kube_.writes().size(), 2U);
  const std::string second = Stored().ca;
  EXPECT_EQ(keeper.Trusted(), first + second);
  keeper.Look();
  clock_.Advance(kAnnounced);
  keeper.Look();
  EXPECT_EQ(keeper.Trusted(), second);
  EXPECT_EQ(kube_.writes().size(), 2U);
  EXPECT_EQ(changes_, 3);
}

TEST_F(CertificateKeeperTest, StartedInAnOverlapLetsWorkersTrustWhatAnEarlierOneServes) {
  const ServerIdentity first = Issue();
  auto earlier = Keeper(SecretKeeper::kOther);
  earlier.Look();
  const ServerIdentity second = Issue();
  earlier.Look();
  auto later = Keeper(SecretKeeper::kOther);
  of_others_ = {earlier.ServedAuthorities()};
  later.Look();
  EXPECT_EQ(later.ServedAuthorities(), second.ca);
  EXPECT_EQ(later.Trusted(), second.ca + first.ca);
  clock_.Advance(kAnnounced);
  earlier.Look();
  of_others_ = {earlier.ServedAuthorities()};
  const int before = changes_;
  later.Look();
  EXPECT_EQ(later.Trusted(), second.ca);
  EXPECT_EQ(changes_, before + 1)
      << "jobs are to be reconciled, so that no worker trusts the first any longer";
}

TEST_F(CertificateKeeperTest, WaitsForAnExternallyManagedSecretAndWritesNothing) {
  auto keeper = Keeper(SecretKeeper::kOther);
  keeper.Look();
  EXPECT_EQ(keeper.WhyNoneIsServed(), "no certificate yet: Secret system/tls: the Secret does not exist");
  Put({{"metadata", {{"namespace", kTls.name_space}, {"name", kTls.name}}},
       {"data", {{"tls.key", kube::EncodeBase64("first")}}}});
  keeper.Look();
  EXPECT_EQ(keeper.WhyNoneIsServed(), "no certificate yet: Secret system/tls: tls.crt is missing or empty");
  const ServerIdentity issued = Issue();
  keeper.Look();
  EXPECT_EQ(keeper.WhyNoneIsServed(), "");
  EXPECT_EQ(keeper.Trusted(), issued.ca);
  EXPECT_EQ(kube_.writes().size(), 2U) << "those of this test";
}

TEST_F(CertificateKeeperTest, KeepsWhatItHasWhereTheSecretIsBadOrGone) {
  auto keeper = Keeper(SecretKeeper::kOther);
  const ServerIdentity first = Issue();
  keeper.Look();
  Json bad = SecretFrom(kTls, first);
  bad["data"]["tls.key"] = kube::EncodeBase64("rubbish");
  Put(bad);
  keeper.Look();
  EXPECT_EQ(keeper.Trusted(), first.ca);
  ASSERT_TRUE(kube_.Delete(kube::kSecrets, kTls, {}).ok());
  keeper.Look();
  EXPECT_EQ(keeper.Trusted(), first.ca);
  EXPECT_EQ(keeper.WhyNoneIsServed(), "");
  EXPECT_EQ(changes_, 1);
}

TEST_F(CertificateKeeperTest, ServesWhatItHasAnnouncedThoughTheSecretIsGone) {
  auto keeper = Keeper(SecretKeeper::kOther);
  Issue();
  keeper.Look();
  const ServerIdentity second = Issue();
  keeper.Look();
  ASSERT_TRUE(kube_.Delete(kube::kSecrets, kTls, {}).ok());
  clock_.Advance(kAnnounced);
  keeper.Look();
  EXPECT_EQ(keeper.Trusted(), second.ca);
}

}  // namespace
}  // namespace lockstep::rendezvous

#include "operator/reconcile/claims.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"

namespace lockstep::reconcile {
namespace {

using namespace std::chrono_literals;

class ClaimsTest : public ::testing::Test {
 protected:
  static constexpr const char* kHolder = "team/lockstep-leader";

  void CreateLease() {
    (void)*kube_.Create(
        kube::kLeases,
        {{"metadata", {{"namespace", "team"}, {"name", "lockstep-leader"}}},
         {"spec",
          {{"holderIdentity", "pod_1f2e"}, {"leaseDurationSeconds", 15}, {"renewTime", "at first"}}}});
  }
  void Renew(const std::string& time) { Write({{"renewTime", time}}); }
  void Write(const Json& fields) {
    Json lease = *kube_.Get(kube::kLeases, {"team", "lockstep-leader"});
    lease["spec"].update(fields);
    (void)*kube_.Replace(kube::kLeases, lease);
  }
  // Looks for that long, as often as passes do.
  bool IsAbandonedAfter(SteadyTime::duration time) {
    bool is_abandoned = claims_.IsAbandoned(kHolder);
    for (SteadyTime::duration passed{}; passed < time; passed += Claims::kPeriod) {
      clock_.Advance(Claims::kPeriod);
      is_abandoned = claims_.IsAbandoned(kHolder);
    }
    return is_abandoned;
  }

  testing::FakeKube kube_;
  testing::FakeClock clock_;
  Claims claims_{kube_, clock_};
};

TEST_F(ClaimsTest, AreAbandonedAfterFiveMinutesWithoutARenewal) {
  CreateLease();
  EXPECT_FALSE(IsAbandonedAfter(270s));
  EXPECT_TRUE(IsAbandonedAfter(30s));
}

TEST_F(ClaimsTest, AreNoLongerAbandonedAtOnceWhenTheLeaseIsRenewedAgain) {
  CreateLease();
  EXPECT_TRUE(IsAbandonedAfter(300s));
  Renew("again");
  EXPECT_FALSE(claims_.IsAbandoned(kHolder));
  EXPECT_FALSE(IsAbandonedAfter(270s));
}

// An operator that ends in good order writes that nobody has to wait for it.
TEST_F(ClaimsTest, OfAReleasedLeaseAreAbandonedAfterTheSameTime) {
  CreateLease();
  Write({{"holderIdentity", ""}, {"leaseDurationSeconds", 1}});
  EXPECT_FALSE(IsAbandonedAfter(270s));
  EXPECT_TRUE(IsAbandonedAfter(30s));
}

TEST_F(ClaimsTest, OfASlowerLeaseAreAbandonedLater) {
  CreateLease();
  Write({{"leaseDurationSeconds", 60}});
  EXPECT_FALSE(IsAbandonedAfter(1170s));
  EXPECT_TRUE(IsAbandonedAfter(30s));
}

TEST_F(ClaimsTest, AreNotAbandonedWhileTheLeaseIsRenewed) {
  CreateLease();
  for (int i = 0; i < 10; ++i) {
    Renew(std::to_string(i));
    EXPECT_FALSE(IsAbandonedAfter(90s));
  }
}

TEST_F(ClaimsTest, OfAnInstallationWithoutALeaseAreAbandonedAfterTheSameTime) {
  EXPECT_FALSE(IsAbandonedAfter(270s));
  EXPECT_TRUE(IsAbandonedAfter(30s));
}

TEST_F(ClaimsTest, AreKeptWhileTheLeaseCannotBeRead) {
  CreateLease();
  EXPECT_FALSE(IsAbandonedAfter(270s));
  kube_.why_unreadable = [](const kube::ObjectKey&) { return Error{ErrorCode::kForbidden, "no right"}; };
  EXPECT_FALSE(IsAbandonedAfter(3600s));
}

TEST_F(ClaimsTest, OfWhatIsNoNameAreKept) {
  for (const char* holder : {"", "lockstep-leader", "team/", "team/../../secrets/a", "team/..", "Team/a b"}) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_FALSE(claims_.IsAbandoned(holder)) << holder;
      clock_.Advance(Claims::kPeriod);
    }
  }
}

}  // namespace
}  // namespace lockstep::reconcile

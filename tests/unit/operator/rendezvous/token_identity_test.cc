#include "operator/rendezvous/token_identity.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

Json GoodReview() {
  return *ParseJson(R"({"status": {"authenticated": true, "audiences": ["lockstep"],
    "user": {"username": "system:serviceaccount:team:default", "extra": {
      "authentication.kubernetes.io/pod-name": ["job-worker-1"],
      "authentication.kubernetes.io/pod-uid": ["pod-uid"]}}}})");
}

Json Changed(const std::string& pointer, const Json& value) {
  Json review = GoodReview();
  review[Json::json_pointer(pointer)] = value;
  return review;
}

TEST(IdentityFromReview, ReadsWhoseTokenItIs) {
  const auto identity = IdentityFromReview(GoodReview());
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->name_space, "team");
  EXPECT_EQ(identity->pod, "job-worker-1");
  EXPECT_EQ(identity->pod_uid, "pod-uid");
}

TEST(IdentityFromReview, RefusesWhatProvesNoPod) {
  for (const Json& review : {Changed("/status/authenticated", false), Changed("/status/audiences", {"api"}),
                             Changed("/status/user/username", "kubernetes-admin"),
                             Changed("/status/user/username", "system:node:a:b"),
                             Changed("/status/user/extra", Json::object()), Json::object()}) {
    const auto identity = IdentityFromReview(review);
    ASSERT_FALSE(identity.ok()) << review.dump();
    EXPECT_EQ(identity.error().code, ErrorCode::kUnauthorized);
  }
}

TEST(CheckMember, LetsAPodSpeakForItselfOnly) {
  const TokenIdentity identity{"team", "job-worker-1", "pod-uid"};
  const protocol::JobIdentity job{"team", "job", "job-uid"};
  const protocol::Member member{.pod = "job-worker-1", .pod_uid = "pod-uid", .slot = 1};
  const auto pod = [](const std::string& uid, const std::string& slot, const Json& changes = Json::object()) {
    Json owner = {{"apiVersion", "lockstep.dev/v1alpha1"},
                  {"kind", "DistributedTrainingJob"},
                  {"name", "job"},
                  {"uid", "job-uid"},
                  {"controller", true}};
    owner.update(changes);
    return std::make_shared<const Json>(Json{{"metadata",
                                              {{"uid", uid},
                                               {"namespace", "team"},
                                               {"labels", {{"lockstep.dev/slot", slot}}},
                                               {"ownerReferences", Json::array({std::move(owner)})}}}});
  };
  const kube::Object good = pod("pod-uid", "1");
  EXPECT_TRUE(CheckMember(identity, job, member, good).ok());
  const struct {
    const char* name;
    protocol::JobIdentity job;
    protocol::Member member;
    kube::Object pod;
  } cases[] = {
      {"another pod", job, {.pod = "job-worker-2", .pod_uid = "pod-uid", .slot = 1}, good},
      {"an older incarnation", job, {.pod = "job-worker-1", .pod_uid = "older", .slot = 1}, good},
      {"a job elsewhere", {"other", "job", "job-uid"}, member, good},
      {"an unknown pod", job, member, nullptr},
      {"another job of that uid", {"team", "other", "job-uid"}, member, good},
      {"a replaced pod", job, member, pod("newer", "1")},
      {"another job's pod", job, member, pod("pod-uid", "1", {{"uid", "other-job"}})},
      {"an owner of another kind", job, member, pod("pod-uid", "1", {{"kind", "Job"}})},
      {"an owner of another API", job, member, pod("pod-uid", "1", {{"apiVersion", "batch/v1"}})},
      {"an owner that is no controller", job, member, pod("pod-uid", "1", {{"controller", false}})},
      {"another slot", job, member, pod("pod-uid", "0")},
  };
  for (const auto& test : cases) {
    const auto allowed = CheckMember(identity, test.job, test.member, test.pod);
    ASSERT_FALSE(allowed.ok()) << test.name;
    EXPECT_EQ(allowed.error().code, ErrorCode::kForbidden);
  }
}

}  // namespace
}  // namespace lockstep::rendezvous

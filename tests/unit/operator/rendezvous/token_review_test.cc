#include "operator/rendezvous/token_review.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/support/fake_clock.h"

namespace lockstep::rendezvous {
namespace {

Json ReviewOf(const std::string& pod, const std::string& uid) {
  return {{"status",
           {{"authenticated", true},
            {"audiences", Json::array({"lockstep"})},
            {"user",
             {{"username", "system:serviceaccount:ns:default"},
              {"extra",
               {{"authentication.kubernetes.io/pod-name", Json::array({pod})},
                {"authentication.kubernetes.io/pod-uid", Json::array({uid})}}}}}}}};
}

// Answers every TokenReview like an API server that knows one token.
class OneToken final : public kube::KubeWriter {
 public:
  Result<Json> Create(const kube::Resource&, const Json& object) override {
    ++reviews;
    if (StringAt(object, {"spec", "token"}) != "good") return Json{{"status", {{"authenticated", false}}}};
    return ReviewOf("pod-0", "uid-0");
  }
  Result<Json> Replace(const kube::Resource&, const Json&) override { return Unexpected(); }
  Result<Json> Patch(const kube::Resource&, const kube::ObjectKey&, const Json&,
                     const kube::PatchOptions&) override {
    return Unexpected();
  }
  Result<Json> Delete(const kube::Resource&, const kube::ObjectKey&, const kube::DeleteOptions&) override {
    return Unexpected();
  }
  std::atomic<int> reviews{0};

 private:
  static Error Unexpected() { return {ErrorCode::kInternal, "only TokenReviews are created"}; }
};

class TokenReviewTest : public ::testing::Test {
 protected:
  Result<void> Ask(const std::string& token, const std::string& name_space, const std::string& pod,
                   const std::string& uid, const std::string& job_uid) {
    std::promise<Result<void>> answer;
    reviewer_.MakeAuthorizer()(token, {name_space, "job", job_uid}, {.pod = pod, .pod_uid = uid},
                               [&](Result<void> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  }
  ErrorCode CodeOf(const std::string& token, const std::string& name_space, const std::string& pod,
                   const std::string& uid, const std::string& job_uid) {
    return Ask(token, name_space, pod, uid, job_uid).error().code;
  }

  testing::FakeClock clock_;
  OneToken kube_;
  TokenReviewer reviewer_{kube_,
                          [](const kube::ObjectKey& pod, const std::string& uid, const std::string& job) {
                            return pod.name == "pod-0" && uid == "uid-0" && job == "job-uid";
                          },
                          clock_};
};

TEST_F(TokenReviewTest, TheMembersOwnTokenIsAcceptedAndRemembered) {
  EXPECT_TRUE(Ask("good", "ns", "pod-0", "uid-0", "job-uid").ok());
  EXPECT_TRUE(Ask("good", "ns", "pod-0", "uid-0", "job-uid").ok());
  EXPECT_EQ(kube_.reviews, 1);
}

TEST_F(TokenReviewTest, EverybodyElseIsRefused) {
  EXPECT_EQ(CodeOf("bad", "ns", "pod-0", "uid-0", "job-uid"), ErrorCode::kUnauthorized);
  EXPECT_EQ(CodeOf("", "ns", "pod-0", "uid-0", "job-uid"), ErrorCode::kUnauthorized);
  EXPECT_EQ(CodeOf("good", "other", "pod-0", "uid-0", "job-uid"), ErrorCode::kForbidden);
  EXPECT_EQ(CodeOf("good", "ns", "pod-1", "uid-0", "job-uid"), ErrorCode::kForbidden);
  EXPECT_EQ(CodeOf("good", "ns", "pod-0", "uid-9", "job-uid"), ErrorCode::kForbidden);
  EXPECT_EQ(CodeOf("good", "ns", "pod-0", "uid-0", "another-job"), ErrorCode::kForbidden);
}

TEST(BearerOf, RefusesTokensOfAnotherAudienceOrWithoutAPod) {
  Json review = ReviewOf("p", "u");
  EXPECT_TRUE(BearerOf(review).ok());
  review["status"]["audiences"] = Json::array({"https://kubernetes.default.svc"});
  EXPECT_FALSE(BearerOf(review).ok());
  EXPECT_FALSE(BearerOf(ReviewOf("", "")).ok());
}

}  // namespace
}  // namespace lockstep::rendezvous

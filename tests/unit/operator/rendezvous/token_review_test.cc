#include "operator/rendezvous/token_review.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>

#include "tests/support/fake_clock.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

// Answers token reviews, and counts them.
class ReviewServer final : public kube::KubeWriter {
 public:
  std::atomic<int> asked = 0;
  std::atomic<bool> away = false;
  Result<Json> Create(const kube::Resource&, const Json& review) override {
    ++asked;
    if (StringAt(review, {"spec", "token"}) == "throws") throw std::runtime_error("thrown");
    if (away) return Error{ErrorCode::kUnavailable, "away"};
    if (StringAt(review, {"spec", "token"}) != "good") return *ParseJson(R"({"status": {"error": "bad"}})");
    return *ParseJson(R"({"status": {"authenticated": true, "audiences": ["lockstep"],
      "user": {"username": "system:serviceaccount:team:default", "extra": {
        "authentication.kubernetes.io/pod-name": ["p"], "authentication.kubernetes.io/pod-uid": ["u"]}}}})");
  }
  Result<Json> Replace(const kube::Resource&, const Json&) override { return Json(); }
  Result<Json> Patch(const kube::Resource&, const kube::ObjectKey&, const Json&,
                     const kube::PatchOptions&) override {
    return Json();
  }
  Result<Json> Delete(const kube::Resource&, const kube::ObjectKey&, const kube::DeleteOptions&) override {
    return Json();
  }
};

class TokenReviewTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pods_.Put(
        *ParseJson(R"({"metadata": {"namespace": "team", "name": "p", "uid": "u", "resourceVersion": "1",
        "labels": {"lockstep.dev/slot": "0"}, "ownerReferences": [{"uid": "j", "controller": true}]}})"));
  }
  std::future<Result<void>> Start(const std::string& token) {
    auto promise = std::make_shared<std::promise<Result<void>>>();
    reviewer_.Authorize(token, {"team", "job", "j"}, {.pod = "p", .pod_uid = "u", .slot = 0},
                        [promise](Result<void> allowed) { promise->set_value(std::move(allowed)); });
    return promise->get_future();
  }
  bool Allowed(const std::string& token) { return Start(token).get().ok(); }

  testing::FakeClock clock_;
  ReviewServer server_;
  kube::Store pods_;
  TokenReviewer reviewer_{server_, pods_, clock_};
};

TEST_F(TokenReviewTest, AsksOnceAMinute) {
  EXPECT_TRUE(Allowed("good"));
  EXPECT_TRUE(Allowed("good"));
  EXPECT_EQ(server_.asked, 1);
  clock_.Advance(60s);
  EXPECT_TRUE(Allowed("good"));
  EXPECT_EQ(server_.asked, 2);
}

TEST_F(TokenReviewTest, RefusesBadAndMissingTokens) {
  EXPECT_EQ(Start("bad").get().error().code, ErrorCode::kUnauthorized);
  EXPECT_EQ(Start("").get().error().code, ErrorCode::kUnauthorized);
}

TEST_F(TokenReviewTest, AnExceptionRefusesItsTokenAndEndsNoThread) {
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Start("throws").get().error().code, ErrorCode::kInternal);
  std::promise<void> called;
  reviewer_.Authorize("good", {"team", "job", "j"}, {.pod = "p", .pod_uid = "u", .slot = 0}, [&](auto) {
    called.set_value();
    throw std::runtime_error("thrown");
  });
  called.get_future().wait();
  EXPECT_TRUE(Allowed("good"));
}

TEST_F(TokenReviewTest, BelievesAGoodTokenForAWhileWhenTheApiServerIsAway) {
  EXPECT_TRUE(Allowed("good"));
  server_.away = true;
  clock_.Advance(5min);
  EXPECT_TRUE(Allowed("good"));
  clock_.Advance(6min);
  EXPECT_FALSE(Allowed("good"));
  EXPECT_FALSE(Allowed("never seen"));
}

TEST_F(TokenReviewTest, AnswersManyAtOnce) {
  std::vector<std::future<Result<void>>> answers;
  for (int i = 0; i < 200; ++i) answers.push_back(Start(i % 2 == 0 ? "good" : "bad"));
  for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].get().ok(), i % 2 == 0);
}

}  // namespace
}  // namespace lockstep::rendezvous

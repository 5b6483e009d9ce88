#include "operator/rendezvous/token_review.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <stdexcept>

#include "tests/support/creating_writer.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

// Answers token reviews and counts them. Tokens that begin with "good" belong to the pod p.
class ReviewServer final : public testing::CreatingWriter {
 public:
  std::atomic<int> asked = 0;
  std::atomic<bool> away = false;
  std::atomic<bool> refuses_all = false;
  std::atomic<ErrorCode> failure = ErrorCode::kUnavailable;

  Result<Json> Create(const kube::Resource&, const Json& review) override {
    const std::string token = StringAt(review, {"spec", "token"});
    {
      const std::lock_guard lock(mutex_);
      tokens_.push_back(token);
    }
    const bool is_away = away;
    const bool is_good = token.starts_with("good") && !refuses_all;
    ++asked;
    is_held_.wait(true);
    if (token == "throws") throw std::runtime_error("thrown");
    if (is_away) return Error{failure, "away"};
    if (!is_good) return *ParseJson(R"({"status": {"error": "bad"}})");
    return *ParseJson(R"({"status": {"authenticated": true, "audiences": ["lockstep"],
      "user": {"username": "system:serviceaccount:team:default", "extra": {
        "authentication.kubernetes.io/pod-name": ["p"], "authentication.kubernetes.io/pod-uid": ["u"]}}}})");
  }

  // Reviews that begin from now on wait for Release.
  void Hold() { is_held_ = true; }
  void Release() {
    is_held_ = false;
    is_held_.notify_all();
  }
  // The reviewed tokens, in order.
  std::vector<std::string> tokens() const {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  std::atomic<bool> is_held_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> tokens_;
};

class TokenReviewTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pods_.Put(
        *ParseJson(R"({"metadata": {"namespace": "team", "name": "p", "uid": "u", "resourceVersion": "1",
        "labels": {"lockstep.dev/slot": "0"}, "ownerReferences": [{"apiVersion": "lockstep.dev/v1alpha1",
          "kind": "DistributedTrainingJob", "name": "job", "uid": "j", "controller": true}]}})"));
  }
  void TearDown() override { server_.Release(); }

  std::future<Result<void>> Start(const std::string& token, const std::string& peer = "10.0.0.1") {
    auto promise = std::make_shared<std::promise<Result<void>>>();
    reviewer_.Authorize({.token = token,
                         .peer = peer,
                         .job = {"team", "job", "j"},
                         .member = {.pod = "p", .pod_uid = "u", .slot = 0}},
                        [promise](Result<void> allowed) { promise->set_value(std::move(allowed)); });
    return promise->get_future();
  }
  bool Allowed(const std::string& token) { return Start(token).get().ok(); }
  ErrorCode Refusal(const std::string& token, const std::string& peer = "10.0.0.1") {
    const auto allowed = Start(token, peer).get();
    return allowed.ok() ? ErrorCode::kInternal : allowed.error().code;
  }
  static bool IsAnswered(const std::future<Result<void>>& answer) {
    return answer.wait_for(0s) == std::future_status::ready;
  }
  bool WereAsked(int times) {
    return testing::Eventually([&] { return server_.asked == times; });
  }

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
  EXPECT_TRUE(WereAsked(2));
}

TEST_F(TokenReviewTest, RefusesBadAndMissingTokens) {
  EXPECT_EQ(Refusal("bad"), ErrorCode::kUnauthorized);
  EXPECT_EQ(Refusal(""), ErrorCode::kUnauthorized);
}

TEST_F(TokenReviewTest, AnswersAKnownTokenWhileItsReviewRuns) {
  EXPECT_TRUE(Allowed("good"));
  clock_.Advance(60s);
  server_.Hold();
  for (int i = 0; i < 3; ++i) {
    const auto answer = Start("good");
    ASSERT_TRUE(IsAnswered(answer)) << "it does not wait for the API server";
  }
  EXPECT_TRUE(WereAsked(2)) << "one review for all of them";
  clock_.Advance(9min);
  auto late = Start("good");
  EXPECT_FALSE(IsAnswered(late)) << "believed for ten minutes, not longer";
  server_.Release();
  EXPECT_TRUE(late.get().ok());
}

TEST_F(TokenReviewTest, AFailedReviewKeepsTheCachedResultAndARejectionRemovesIt) {
  EXPECT_TRUE(Allowed("good"));
  clock_.Advance(60s);
  server_.away = true;
  // the operator has no permission to review: that says nothing about the token
  server_.failure = ErrorCode::kForbidden;
  EXPECT_TRUE(Allowed("good"));
  EXPECT_TRUE(WereAsked(2));
  EXPECT_TRUE(Allowed("good"));
  server_.away = false;
  server_.refuses_all = true;
  clock_.Advance(10s);
  EXPECT_TRUE(testing::Eventually([&] { return !Allowed("good"); }));
  EXPECT_EQ(server_.asked, 3);
}

TEST_F(TokenReviewTest, AnExceptionAnswersItsTokenAndEndsNoThread) {
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Refusal("throws"), ErrorCode::kUnavailable);
  std::promise<void> called;
  reviewer_.Authorize({.token = "good",
                       .peer = "10.0.0.1",
                       .job = {"team", "job", "j"},
                       .member = {.pod = "p", .pod_uid = "u", .slot = 0}},
                      [&](auto) {
                        called.set_value();
                        throw std::runtime_error("thrown");
                      });
  called.get_future().wait();
  EXPECT_TRUE(Allowed("good"));
}

TEST_F(TokenReviewTest, AcceptsACachedTokenWhileTheApiServerIsUnavailable) {
  EXPECT_TRUE(Allowed("good"));
  server_.away = true;
  clock_.Advance(5min);
  EXPECT_TRUE(Allowed("good"));
  clock_.Advance(6min);
  EXPECT_FALSE(Allowed("good"));
  EXPECT_FALSE(Allowed("never seen"));
}

TEST_F(TokenReviewTest, WhatMayPassIsNoRefusal) {
  server_.away = true;
  for (const ErrorCode code : {ErrorCode::kUnavailable, ErrorCode::kDeadlineExceeded, ErrorCode::kThrottled,
                               ErrorCode::kForbidden, ErrorCode::kInternal}) {
    server_.failure = code;
    EXPECT_EQ(Refusal("good"), ErrorCode::kUnavailable) << ErrorCodeName(code);
  }
  server_.away = false;
  EXPECT_TRUE(Allowed("good")) << "nothing of it is remembered";
}

TEST_F(TokenReviewTest, ABadTokenCostsOneReviewAMinute) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Refusal("bad"), ErrorCode::kUnauthorized);
  EXPECT_EQ(server_.asked, 1);
  clock_.Advance(60s);
  EXPECT_EQ(Refusal("bad"), ErrorCode::kUnauthorized);
  EXPECT_EQ(server_.asked, 2);
}

TEST_F(TokenReviewTest, ASourceOfManyBadTokensWaitsAndOthersDoNot) {
  for (int i = 0; i < 1'000; ++i) (void)Refusal("bad" + std::to_string(i));
  EXPECT_EQ(server_.asked, 60);
  EXPECT_EQ(Refusal("good"), ErrorCode::kThrottled);
  EXPECT_TRUE(Start("good", "10.0.0.2").get().ok());
  clock_.Advance(1s);
  EXPECT_EQ(Refusal("one more"), ErrorCode::kUnauthorized);
  EXPECT_EQ(Refusal("and another"), ErrorCode::kThrottled);
}

TEST_F(TokenReviewTest, ManyGoodTokensMayComeFromOneSource) {
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(Allowed("good" + std::to_string(i)));
}

TEST_F(TokenReviewTest, KnownTokensAreReviewedBeforeUnknownOnes) {
  EXPECT_TRUE(Allowed("good"));
  clock_.Advance(60s);
  server_.Hold();
  std::vector<std::future<Result<void>>> unknown;
  for (int i = 0; i < 40; ++i) unknown.push_back(Start("bad" + std::to_string(i)));
  EXPECT_TRUE(WereAsked(5)) << "the four threads";
  EXPECT_TRUE(Allowed("good"));
  server_.Release();
  for (auto& answer : unknown) (void)answer.get();
  const std::vector<std::string> tokens = server_.tokens();
  const auto again = std::find(tokens.begin() + 1, tokens.end(), "good");
  EXPECT_LT(again - tokens.begin(), 20) << "not behind those that came before";
}

TEST_F(TokenReviewTest, WhoWaitedTooLongIsAnsweredWithoutAReview) {
  server_.Hold();
  std::vector<std::future<Result<void>>> waiting;
  for (int i = 0; i < 10; ++i) waiting.push_back(Start("good" + std::to_string(i)));
  EXPECT_TRUE(WereAsked(4));
  clock_.Advance(10s);
  server_.Release();
  int refused = 0;
  for (auto& answer : waiting) {
    const auto allowed = answer.get();
    if (allowed.ok()) continue;
    ++refused;
    EXPECT_EQ(allowed.error().code, ErrorCode::kUnavailable);
  }
  EXPECT_EQ(refused, 6);
  EXPECT_EQ(server_.asked, 4);
}

TEST_F(TokenReviewTest, AnswersManyAtOnce) {
  std::vector<std::future<Result<void>>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(Start(i % 2 == 0 ? "good" : "bad"));
  for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].get().ok(), i % 2 == 0);
}

TEST_F(TokenReviewTest, ATokenHasFewRequestsWaiting) {
  server_.Hold();
  std::vector<std::future<Result<void>>> answers;
  for (int i = 0; i < 33; ++i) answers.push_back(Start("good"));
  ASSERT_TRUE(IsAnswered(answers.back()));
  EXPECT_EQ(answers.back().get().error().code, ErrorCode::kThrottled);
}

TEST(RefusedTokens, KeepsTheNewest) {
  RefusedTokens refused;
  const SteadyTime now{1h};
  const Error why{ErrorCode::kUnauthorized, "bad"};
  for (int i = 0; i < 20'000; ++i) refused.Add(std::to_string(i), why, now);
  EXPECT_EQ(refused.size(), 10'000U);
  EXPECT_FALSE(refused.Find("0", now).has_value());
  EXPECT_TRUE(refused.Find("19999", now).has_value());
  refused.Add("later", why, now + 60s);
  EXPECT_EQ(refused.size(), 1U);
}

TEST(ReviewBudget, ForgetsSourcesThatOweNothing) {
  ReviewBudget budget;
  const SteadyTime now{1h};
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(budget.Take(std::to_string(i), now));
  EXPECT_FALSE(budget.Take("one too many", now));
  EXPECT_TRUE(budget.Take("0", now));
  EXPECT_TRUE(budget.Take("later", now + 1s));
  EXPECT_EQ(budget.size(), 2U) << "0 owes one still";
}

}  // namespace
}  // namespace lockstep::rendezvous

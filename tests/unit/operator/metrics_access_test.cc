#include "operator/metrics_access.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>

#include "tests/support/creating_writer.h"
#include "tests/support/fake_clock.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Answers reviews: a token names its user, and only prometheus may read the metrics.
class ReviewServer final : public testing::CreatingWriter {
 public:
  std::atomic<int> asked = 0;
  std::atomic<bool> is_away = false;
  std::atomic<bool> allows_nobody = false;

  Result<Json> Create(const kube::Resource& resource, const Json& review) override {
    ++asked;
    if (is_away) return Error{ErrorCode::kUnavailable, "away"};
    if (resource == kube::kTokenReviews) {
      const std::string token = StringAt(review, {"spec", "token"});
      if (token == "bad") return *ParseJson(R"({"status": {"error": "it has expired"}})");
      Json answer = *ParseJson(
          R"({"status": {"authenticated": true, "user": {"uid": "u", "groups": ["g"], "extra": {"e": ["1"]}}}})");
      answer["status"]["user"]["username"] = token;
      return answer;
    }
    const std::lock_guard lock(mutex_);
    access_review_ = review;
    return Json{
        {"status", {{"allowed", StringAt(review, {"spec", "user"}) == "prometheus" && !allows_nobody}}}};
  }

  Json access_review() const {
    const std::lock_guard lock(mutex_);
    return access_review_;
  }

 private:
  mutable std::mutex mutex_;
  Json access_review_;
};

class MetricsAccessTest : public ::testing::Test {
 protected:
  // The code of the answer, or nullopt if access is granted.
  std::optional<ErrorCode> Ask(const std::string& token, const std::string& peer = "10.0.0.1") {
    const auto answer = std::make_shared<std::promise<Result<void>>>();  // its thread may outlast the wait
    access_.Authorize(token, peer, [answer](const Result<void>& given) { answer->set_value(given); });
    const Result<void> given = answer->get_future().get();
    return given.ok() ? std::nullopt : std::optional(given.error().code);
  }

  testing::FakeClock clock_;
  ReviewServer server_;
  MetricsAccess access_{server_, clock_};
};

TEST_F(MetricsAccessTest, AsksTheApiServerAboutTheUserOfTheToken) {
  EXPECT_EQ(Ask("prometheus"), std::nullopt);
  EXPECT_EQ(server_.access_review(), *ParseJson(R"({"spec": {
    "user": "prometheus", "uid": "u", "groups": ["g"], "extra": {"e": ["1"]},
    "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}})"));
  EXPECT_EQ(Ask("somebody"), ErrorCode::kForbidden);
  EXPECT_EQ(Ask("bad"), ErrorCode::kUnauthorized);
}

TEST_F(MetricsAccessTest, WithoutATokenNoReviewIsMade) {
  EXPECT_EQ(Ask(""), ErrorCode::kUnauthorized);
  EXPECT_EQ(server_.asked, 0);
}

TEST_F(MetricsAccessTest, AnAnswerHoldsForAMinute) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Ask("prometheus"), std::nullopt);
    EXPECT_EQ(Ask("bad"), ErrorCode::kUnauthorized);
  }
  EXPECT_EQ(server_.asked, 3) << "two reviews of the good token, one of the bad one";
  server_.allows_nobody = true;
  clock_.Advance(59s);
  EXPECT_EQ(Ask("prometheus"), std::nullopt);
  clock_.Advance(1s);
  EXPECT_EQ(Ask("prometheus"), ErrorCode::kForbidden);
}

TEST_F(MetricsAccessTest, WithoutTheApiServerAYesHoldsForTenMinutes) {
  EXPECT_EQ(Ask("prometheus"), std::nullopt);
  EXPECT_EQ(Ask("somebody"), ErrorCode::kForbidden);
  server_.is_away = true;
  clock_.Advance(9min);
  EXPECT_EQ(Ask("prometheus"), std::nullopt);
  EXPECT_EQ(Ask("somebody"), ErrorCode::kUnavailable);
  EXPECT_EQ(Ask("unknown"), ErrorCode::kUnavailable);
  clock_.Advance(1min);
  EXPECT_EQ(Ask("prometheus"), ErrorCode::kUnavailable);
}

TEST_F(MetricsAccessTest, TokensThatAreRefusedCostOneSourceItsReviews) {
  for (int i = 0; i < 60; ++i) EXPECT_EQ(Ask("user-" + std::to_string(i)), ErrorCode::kForbidden);
  EXPECT_EQ(Ask("one-more"), ErrorCode::kThrottled);
  EXPECT_EQ(Ask("prometheus", "10.0.0.2"), std::nullopt) << "another source";
}

}  // namespace
}  // namespace lockstep

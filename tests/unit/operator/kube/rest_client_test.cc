#include "operator/kube/rest_client.h"

#include <gtest/gtest.h>

#include "tests/support/fake_transport.h"

namespace lockstep::kube {
namespace {

using http::Response;

std::string StatusBody(int code, const std::string& reason) {
  return DumpJson({{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", "m"}});
}

TEST(RestClient, TurnsRefusalsIntoCodes) {
  const struct {
    int status;
    std::string body;
    ErrorCode code;
  } cases[] = {
      {409, StatusBody(409, "AlreadyExists"), ErrorCode::kAlreadyExists},
      {409, StatusBody(409, "Conflict"), ErrorCode::kConflict},
      {404, StatusBody(404, "NotFound"), ErrorCode::kNotFound},
      {404, "404 page not found", ErrorCode::kNotFound},
      {403, StatusBody(403, "Forbidden"), ErrorCode::kForbidden},
      {410, StatusBody(410, "Expired"), ErrorCode::kGone},
      {422, StatusBody(422, "Invalid"), ErrorCode::kInvalidArgument},
      {429, StatusBody(429, "TooManyRequests"), ErrorCode::kThrottled},
      {500, StatusBody(500, "InternalError"), ErrorCode::kUnavailable},
      {503, "<html>", ErrorCode::kUnavailable},
      {504, StatusBody(504, "Timeout"), ErrorCode::kDeadlineExceeded},
  };
  for (const auto& test : cases) {
    testing::FakeTransport transport;
    transport.answer = [&](const auto&) { return Response{.status = test.status, .body = test.body}; };
    const auto got = RestClient(transport).Get(kPods, {"team", "a"});
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code, test.code) << got.error().ToString();
  }
}

TEST(RestClient, SendsOnceMoreWhereNoAnswerCame) {
  testing::FakeTransport transport;
  transport.answer = [&](const auto&) -> Result<Response> {
    if (transport.requests.size() == 1) return Error{ErrorCode::kUnavailable, "reset"};
    return Response{.status = 201, .body = R"({"metadata":{"uid":"u"}})"};
  };
  std::vector<int> observed;
  RestClient client(transport,
                    {.observer = [&](const std::string&, int status) { observed.push_back(status); }});
  const auto created = client.Create(kPods, {{"metadata", {{"name", "a"}}}});
  ASSERT_TRUE(created.ok());
  EXPECT_EQ(UidOf(*created), "u");
  EXPECT_EQ(observed, (std::vector<int>{0, 201}));
}

// Records the requested waits instead of waiting.
class RestClientWaits : public ::testing::Test {
 protected:
  RestClientOptions Options() {
    return {.pause = [this](Milliseconds time, const std::stop_token& stop) {
      waits_.push_back(time.count());
      return !stop.stop_requested();
    }};
  }
  Result<Response> Overloaded(int status, const std::string& after) {
    return Response{.status = status, .headers = {{"retry-after", after}}, .body = StatusBody(status, "x")};
  }

  testing::FakeTransport transport_;
  std::vector<int64_t> waits_;
};

TEST_F(RestClientWaits, AsLongAsTheApiServerAsks) {
  transport_.answer = [&](const auto&) -> Result<Response> {
    if (transport_.requests.size() <= 2) return Overloaded(transport_.requests.size() == 1 ? 429 : 503, "3");
    return Response{.status = 200, .body = "{}"};
  };
  EXPECT_TRUE(RestClient(transport_, Options()).Get(kPods, {"team", "a"}).ok());
  EXPECT_EQ(waits_, (std::vector<int64_t>{3000, 3000}));
}

TEST_F(RestClientWaits, NotForEver) {
  transport_.answer = [&](const auto&) { return Overloaded(429, "4"); };
  const auto refused = RestClient(transport_, Options()).Get(kPods, {"team", "a"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kThrottled);
  EXPECT_EQ(waits_, (std::vector<int64_t>{4000, 4000}));
}

TEST(RestClient, EndsAnExchangeWhenTheCallerSays) {
  testing::FakeTransport transport;
  EXPECT_TRUE(RestClient(transport, {.timeout = Milliseconds(5'000)}).Get(kPods, {"team", "a"}).ok());
  EXPECT_EQ(transport.requests.at(0).timeout, Milliseconds(5'000));
}

TEST_F(RestClientWaits, OnlyWhereItIsAsked) {
  const std::pair<int, std::string> cases[] = {{429, ""}, {503, "soon"}, {409, "1"}};
  for (const auto& [status, after] : cases) {
    transport_.answer = [&, status = status, after = after](const auto&) {
      return Overloaded(status, after);
    };
    EXPECT_FALSE(RestClient(transport_, Options()).Get(kPods, {"team", "a"}).ok());
  }
  EXPECT_TRUE(waits_.empty());
}

TEST_F(RestClientWaits, NotBeyondTheTimeThatIsLeft) {
  RestClientOptions options = Options();
  options.time_left = [this] { return Milliseconds(5000 - 3000 * static_cast<int64_t>(waits_.size())); };
  transport_.answer = [&](const auto&) { return Overloaded(429, "3"); };
  const auto refused = RestClient(transport_, std::move(options)).Get(kPods, {"team", "a"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kThrottled);
  EXPECT_EQ(waits_, (std::vector<int64_t>{3000}));
  ASSERT_EQ(transport_.requests.size(), 2U);
  EXPECT_EQ(transport_.requests[0].timeout, Milliseconds(5000));
  EXPECT_EQ(transport_.requests[1].timeout, Milliseconds(2000));
}

TEST(RestClient, SendsNothingOnceNoTimeIsLeft) {
  testing::FakeTransport transport;
  const auto got =
      RestClient(transport, {.time_left = [] { return Milliseconds(0); }}).Get(kPods, {"team", "a"});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(transport.requests.empty());
}

TEST_F(RestClientWaits, ForItsTurn) {
  RestClientOptions options = Options();
  options.requests_per_second = 0.001;
  options.burst = 2;
  RestClient client(transport_, std::move(options));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client.Get(kPods, {"team", "a"}).ok());
  ASSERT_EQ(waits_.size(), 1U) << "the burst is free";
  EXPECT_NEAR(static_cast<double>(waits_[0]), 1e6, 1e4);
}

TEST_F(RestClientWaits, NotOnceItIsStopped) {
  std::stop_source stop;
  stop.request_stop();
  RestClientOptions options = Options();
  options.stop = stop.get_token();
  const auto created =
      RestClient(transport_, std::move(options)).Create(kPods, {{"metadata", {{"name", "a"}}}});
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(transport_.requests.empty()) << "nothing is written after the end";
}

TEST(RestClient, ReadsAPage) {
  testing::FakeTransport transport;
  transport.answer = [](const auto&) {
    return Response{.status = 200,
                    .body = R"({"metadata":{"resourceVersion":"9","continue":"c"},"items":[{},{}]})"};
  };
  const auto page = RestClient(transport).List(kPods, {}, {});
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->items.size(), 2U);
  EXPECT_EQ(page->continue_token, "c");
  EXPECT_EQ(page->resource_version, "9");
}

TEST(RestClient, DeliversWatchEventsAndReportsARefusal) {
  testing::FakeTransport transport;
  transport.chunks = {"{\"type\":\"ADDED\",\"obj", "ect\":{}}\n"};
  int events = 0;
  const auto count = [&](const WatchEvent&) { return ++events > 0; };
  EXPECT_TRUE(RestClient(transport).Watch(kPods, {}, count, {}).ok());
  EXPECT_EQ(events, 1);
  transport.chunks.clear();
  transport.answer = [](const auto&) { return Response{.status = 410, .body = StatusBody(410, "Expired")}; };
  const auto refused = RestClient(transport).Watch(kPods, {}, count, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kGone);
}

}  // namespace
}  // namespace lockstep::kube

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
  RestClient client(transport, [&](const std::string&, int status) { observed.push_back(status); });
  const auto created = client.Create(kPods, {{"metadata", {{"name", "a"}}}});
  ASSERT_TRUE(created.ok());
  EXPECT_EQ(UidOf(*created), "u");
  EXPECT_EQ(observed, (std::vector<int>{0, 201}));
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

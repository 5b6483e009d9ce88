#include "operator/kube/exec_credentials.h"

#include <gtest/gtest.h>

#include <mutex>

#include "runtime/common/base/file.h"
#include "runtime/common/http/server.h"
#include "tests/support/fake_clock.h"

namespace lockstep::kube {
namespace {

constexpr const char* kVersion = "client.authentication.k8s.io/v1";

std::string Text(const std::string& status) {
  return R"({"apiVersion":")" + std::string(kVersion) + R"(","kind":"ExecCredential","status":{)" + status +
         "}}";
}

TEST(ExecCredential, IsReadOrRefusedByName) {
  const auto read = ExecCredentialFromText(
      Text(R"("clientCertificateData":"C","clientKeyData":"K","expirationTimestamp":"2026-01-01T00:00:00Z")"),
      kVersion);
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  EXPECT_EQ(read->certificate_and_key, "C\nK");
  EXPECT_EQ(read->expires, WallTime(std::chrono::seconds(1'767'225'600)));
  const std::pair<std::string, std::string> cases[] = {
      {"login first", "ExecCredential"},
      {"{}", "no ExecCredential"},
      {R"({"kind":"ExecCredential","apiVersion":"x/v9"})", "it wrote \"x/v9\""},
      {Text(""), "neither a token nor a certificate"},
      {Text(R"("clientKeyData":"K")"), "must both be given"},
      {Text(R"("token":"t","expirationTimestamp":"soon")"), "expirationTimestamp"},
  };
  for (const auto& [text, says] : cases) {
    const auto refused = ExecCredentialFromText(text, kVersion);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_NE(refused.error().message.find(says), std::string::npos) << refused.error().message;
  }
}

// A command that counts its runs and puts the count into the token.
class ExecTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ =
        http::StartServer({}, [this](const http::ServerRequest& request, const http::Responder& respond) {
          const std::string who = request.headers.at("authorization");
          const std::lock_guard lock(mutex_);
          respond(http::TextResponse(who == refused_ ? 401 : 200, who));
        }).value();
    config_.files = PrivateFolder::Make().value();
    config_.endpoint.url = "http://127.0.0.1:" + std::to_string(server_->port());
    const std::string runs = config_.files->path() + "/runs";
    config_.exec = ExecPlugin{
        kVersion,
        {"sh", "-c",
         "echo >>" + runs + R"(; printf '%s' "$KUBERNETES_EXEC_INFO" >>)" + runs + ".info; printf '" +
             Text(R"("token":"run-%s","expirationTimestamp":"2026-01-01T01:00:00Z")") + "' $(wc -l <" + runs +
             ")"},
        {}};
  }
  // Returns the identity that the server authenticated.
  std::string Get() {
    const auto answer = transport_->Send({.target = "/"}, {});
    EXPECT_TRUE(answer.ok()) << answer.error().ToString();
    return answer.ok() && answer->status == 200 ? answer->body : "";
  }
  void Refuse(const std::string& who) {
    const std::lock_guard lock(mutex_);
    refused_ = who;
  }

  std::mutex mutex_;
  std::string refused_;  // GUARDED_BY(mutex_)
  std::unique_ptr<http::HttpServer> server_;
  testing::FakeClock clock_;  // 2026-01-01T00:00:00Z
  ClientConfig config_;
  std::unique_ptr<http::HttpTransport> transport_;
};

TEST_F(ExecTransportTest, RunsTheCommandAgainOnlyWhereTheTokenExpiresOrIsRefused) {
  auto made = MakeTransport(config_, clock_);
  ASSERT_TRUE(made.ok()) << made.error().ToString();
  transport_ = std::move(made).value();
  EXPECT_EQ(Get(), "Bearer run-1");
  EXPECT_EQ(Get(), "Bearer run-1");
  clock_.Advance(std::chrono::minutes(59));
  EXPECT_EQ(Get(), "Bearer run-2") << "a minute before it expires";
  const std::string info = *ReadFile(config_.files->path() + "/runs.info");
  EXPECT_NE(info.find(R"("interactive":false)"), std::string::npos) << info;
}

TEST_F(ExecTransportTest, AsksOnceMoreWhereTheApiServerRefuses) {
  transport_ = MakeTransport(config_, clock_).value();
  Refuse("Bearer run-1");
  EXPECT_EQ(Get(), "Bearer run-2");
}

TEST_F(ExecTransportTest, FailsAtOnceWhereTheCommandDoes) {
  config_.exec->words = {"/no/such/login"};
  const auto made = MakeTransport(config_, clock_);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("/no/such/login"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace lockstep::kube

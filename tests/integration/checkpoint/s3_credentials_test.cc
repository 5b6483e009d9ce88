// Checkpoints in a real S3 server with keys that come from elsewhere than the environment.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "runtime/checkpoint/open_store.h"
#include "runtime/common/http/server.h"
#include "runtime/storage/s3_settings.h"
#include "tests/integration/checkpoint/s3_fixture.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::S3Server;
using ::testing::HasSubstr;

constexpr const char* kTokenOfPod = "the token of the pod";

// A stand-in for the agent of EKS Pod Identity, which runs on each node and provides keys to pods that present
// their token.
class PodIdentityAgent {
 public:
  PodIdentityAgent() {
    auto server = http::StartServer(
        {}, [this](const http::ServerRequest& request, const auto& respond) { respond(AnswerTo(request)); });
    LOCKSTEP_CHECK(server.ok(), "no server");
    server_ = std::move(server).value();
  }

  void GiveKey(const std::string& key) {
    const std::lock_guard lock(mutex_);
    key_ = key;
  }
  // Fails the next `requests`.
  void Fail(int requests) { failures_ = requests; }
  void Stop() { Fail(1 << 30); }
  void Start() { Fail(0); }
  [[nodiscard]] std::string url() const {
    return "http://127.0.0.1:" + std::to_string(server_->port()) + "/v1/credentials";
  }

 private:
  http::Response AnswerTo(const http::ServerRequest& request) {
    if (request.headers.at("authorization") != kTokenOfPod) return http::TextResponse(401, "another token");
    if (failures_ > 0) {
      --failures_;
      return http::TextResponse(500, "away");
    }
    const std::lock_guard lock(mutex_);
    return http::JsonResponse(200, R"({"AccessKeyId":")" + key_ + R"(","SecretAccessKey":")" +
                                       S3Server::kSecret +
                                       R"(","Token":"","Expiration":"2999-01-01T00:00:00Z"})");
  }

  std::atomic<int> failures_ = 0;
  std::mutex mutex_;
  std::string key_ = S3Server::kKey;  // GUARDED_BY(mutex_)
  std::unique_ptr<http::HttpServer> server_;
};

class S3CredentialsTest : public S3Test {
 protected:
  void SetUp() override {
    S3Test::SetUp();
    if (IsSkipped()) return;
    ForgetCredentials();
    ::setenv("AWS_ENDPOINT_URL", server_->url().c_str(), 1);
    folder_ = ::testing::TempDir() + "s3-credentials-" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // Sets the variables that EKS sets in a pod.
  void UsePodIdentity(const PodIdentityAgent& agent) {
    std::ofstream(folder_ + "/token") << kTokenOfPod;
    ::setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url().c_str(), 1);
    ::setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", (folder_ + "/token").c_str(), 1);
  }

  std::string folder_;
};

TEST_F(S3CredentialsTest, UsesPodIdentity) {
  const PodIdentityAgent agent;
  UsePodIdentity(agent);
  const auto store = OpenObjectStore(Uri());
  ASSERT_TRUE(store.ok()) << store.error().ToString();
  ASSERT_TRUE((*store)->Put("step-1/x", "content").ok());
  EXPECT_EQ(*(*store)->Get("step-1/x"), "content");
  BeginUpload(Uri().substr(5) + "/step-1/y");
  const auto aborted = (*store)->AbortUploads([](const std::string&) { return true; });
  ASSERT_TRUE(aborted.ok()) << aborted.error().ToString();
  EXPECT_EQ(*aborted, 1);
}

TEST_F(S3CredentialsTest, WaitsForTheSourceOfKeys) {
  PodIdentityAgent agent;
  UsePodIdentity(agent);
  agent.Stop();
  const auto store = OpenObjectStore(Uri());
  ASSERT_TRUE(store.ok()) << store.error().ToString();
  const Error put = (*store)->Put("step-1/x", "content").error();
  EXPECT_EQ(put.code, ErrorCode::kUnavailable);
  EXPECT_THAT(put.message,
              HasSubstr("no valid credentials at this time from AWS_CONTAINER_CREDENTIALS_FULL_URI"));
  EXPECT_EQ((*store)->Get("step-1/x").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ((*store)->AbortUploads([](const std::string&) { return true; }).error().code,
            ErrorCode::kUnavailable);
  agent.Start();
  EXPECT_TRUE((*store)->Put("step-1/x", "content").ok());
}

// The SDK asks again, a limited number of times, and then sends the request without keys.
TEST_F(S3CredentialsTest, NoOutageOfTheSourceIsTakenForADenial) {
  PodIdentityAgent agent;
  UsePodIdentity(agent);
  for (int failures = 0; failures < 20; ++failures) {
    agent.Fail(failures);
    const auto store = OpenForCommand(Uri());
    ASSERT_TRUE(store.ok()) << store.error().ToString();
    const auto put = (*store)->Put("step-1/x", "content");
    EXPECT_TRUE(put.ok() || put.error().code == ErrorCode::kUnavailable)
        << failures << put.error().ToString();
  }
}

TEST_F(S3CredentialsTest, NamesTheSourceOfKeysThatAreDenied) {
  PodIdentityAgent agent;
  UsePodIdentity(agent);
  agent.GiveKey("nobody");
  const auto store = OpenObjectStore(Uri());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kForbidden);
  EXPECT_THAT(store.error().message,
              HasSubstr("check the rights of the identity from AWS_CONTAINER_CREDENTIALS_FULL_URI"));
}

// The SDK keeps keys that it cannot renew, until the store rejects them. A HEAD is answered without a body.
TEST_F(S3CredentialsTest, ExpiredKeysAreAnOutageOfTheirSource) {
  const auto server = http::StartServer({}, [](const http::ServerRequest&, const http::Responder& respond) {
    respond({.status = 400, .body = "<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"});
  });
  ASSERT_TRUE(server.ok());
  const std::string url = "http://127.0.0.1:" + std::to_string((*server)->port());
  const PodIdentityAgent agent;
  UsePodIdentity(agent);
  ::setenv("AWS_ENDPOINT_URL", url.c_str(), 1);
  const auto store = OpenForCommand(Uri());
  ASSERT_TRUE(store.ok()) << store.error().ToString();
  EXPECT_EQ((*store)->Put("step-1/x", "content").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ((*store)->Get("step-1/x").error().code, ErrorCode::kUnavailable);
  SetCredentials(S3Server::kKey, S3Server::kSecret, url);  // nobody renews these
  const auto store_of_keys = OpenForCommand(Uri());
  ASSERT_TRUE(store_of_keys.ok()) << store_of_keys.error().ToString();
  EXPECT_EQ((*store_of_keys)->Put("step-1/x", "content").error().code, ErrorCode::kForbidden);
}

TEST_F(S3CredentialsTest, UsesAProfile) {
  std::ofstream(folder_ + "/credentials")
      << "[default]\naws_access_key_id = nobody\naws_secret_access_key = x\n"
      << "[team]\naws_access_key_id = " << S3Server::kKey << "\naws_secret_access_key = " << S3Server::kSecret
      << "\n";
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", (folder_ + "/credentials").c_str(), 1);
  ::setenv("AWS_PROFILE", "team", 1);
  const auto store = OpenObjectStore(Uri());
  ASSERT_TRUE(store.ok()) << store.error().ToString();
  EXPECT_TRUE((*store)->Put("step-1/x", "content").ok());
}

TEST_F(S3CredentialsTest, SaysThatThereAreNone) {
  const auto store = OpenObjectStore(Uri());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(store.error().message, HasSubstr("spec.checkpoint.secretRef: " + Uri() +
                                               " needs credentials; name a Secret with AWS_ACCESS_KEY_ID"));
}

TEST_F(S3CredentialsTest, DataDoesNotBorrowTheKeysOfCheckpoints) {
  ::setenv("AWS_ACCESS_KEY_ID", S3Server::kKey, 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", S3Server::kSecret, 1);
  const storage::StoreUse data{.field = "spec.training.data.path",
                               .secret_field = "spec.training.data.secretRef",
                               .variable_prefix = "LOCKSTEP_DATA_"};
  const auto settings = storage::S3SettingsFromEnvironment(data, "bucket/texts");
  ASSERT_FALSE(settings.ok());
  EXPECT_THAT(settings.error().message,
              HasSubstr("spec.training.data.secretRef: s3://bucket/texts needs credentials"));
}

}  // namespace
}  // namespace lockstep::checkpoint

#include "tests/integration/checkpoint/s3_fixture.h"

#include <cstdlib>

#include "runtime/checkpoint/open_store.h"
#include "runtime/common/base/file.h"

namespace lockstep::checkpoint {

using testing::S3Server;

void ForgetCredentials() {
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_S3_ADDRESSING_STYLE", "AWS_REGION", "AWS_CA_BUNDLE"})
    ::unsetenv(name);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  ::setenv("AWS_CONFIG_FILE", "/dev/null", 1);
  ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
}

void SetCredentials(const std::string& key, const std::string& secret, const std::string& endpoint) {
  ForgetCredentials();
  ::setenv("AWS_ACCESS_KEY_ID", key.c_str(), 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
  ::setenv("AWS_ENDPOINT_URL", endpoint.c_str(), 1);
}

void BeginUpload(const std::string& path) {
  const std::string command =
      "curl -sS --fail --noproxy '*' --max-time 30 --output /dev/null --aws-sigv4 aws:amz:us-east-1:s3 "
      "--user " +
      std::string(S3Server::kKey) + ":" + S3Server::kSecret +
      " -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -X POST '" + EnvOr("AWS_ENDPOINT_URL", "") + "/" + path +
      "?uploads='";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

void S3Test::SetUpTestSuite() {
  if (S3Server::Program().empty()) return;
  server_ = std::make_unique<S3Server>();
  server_->MakeBucket("bucket");
}

void S3Test::SetUp() {
  if (server_ == nullptr) GTEST_SKIP() << "no versitygw here: tests/cluster/install.sh builds it";
  SetCredentials(S3Server::kKey, S3Server::kSecret, server_->url());
}

std::string S3Test::Uri() {
  return "s3://bucket/" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name());
}

std::unique_ptr<ObjectStore> S3Test::OpenStore() {
  auto store = OpenObjectStore(Uri());
  LOCKSTEP_CHECK(store.ok(), store.ok() ? "" : store.error().ToString());
  return std::move(store).value();
}

}  // namespace lockstep::checkpoint

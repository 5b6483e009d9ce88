// An S3 store that cannot be used: the error names the field or the variable, in time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/open_store.h"
#include "tests/integration/checkpoint/s3_fixture.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::DeafPort;
using lockstep::testing::S3Server;
using ::testing::HasSubstr;

// What opening says, and that it says so in time.
Error ErrorOf(const std::string& uri) {
  const auto start = std::chrono::steady_clock::now();
  const auto store = OpenObjectStore(uri);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  EXPECT_FALSE(store.ok());
  return store.ok() ? Error{} : store.error();
}

TEST_F(S3Test, NamesABucketThatDoesNotExist) {
  const Error error = ErrorOf("s3://absent/prefix");
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("spec.checkpoint.uri: bucket \"absent\" does not exist"));
}

TEST_F(S3Test, NamesTheSecretWhereItIsWrong) {
  SetCredentials(S3Server::kKey, "another-secret", server_->url());
  const Error secret = ErrorOf(Uri());
  EXPECT_EQ(secret.code, ErrorCode::kForbidden);
  EXPECT_THAT(secret.message, HasSubstr("spec.checkpoint.secretRef"));
  SetCredentials("nobody", S3Server::kSecret, server_->url());
  const Error key = ErrorOf(Uri());
  EXPECT_EQ(key.code, ErrorCode::kForbidden);
  EXPECT_THAT(key.message, HasSubstr("spec.checkpoint.secretRef"));
}

TEST_F(S3Test, NamesTheSecretWhereItLacksSomething) {
  SetCredentials("", "", server_->url());
  const Error none = ErrorOf(Uri());
  EXPECT_EQ(none.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(none.message, HasSubstr("spec.checkpoint.secretRef"));
  SetCredentials(S3Server::kKey, "", server_->url());
  EXPECT_THAT(ErrorOf(Uri()).message, HasSubstr("lacks AWS_SECRET_ACCESS_KEY"));
}

TEST_F(S3Test, NamesAnEndpointThatIsNoUrl) {
  for (const char* endpoint : {"127.0.0.1:9000", "ftp://host", "http://", "http:///"}) {
    SetCredentials(S3Server::kKey, S3Server::kSecret, endpoint);
    const Error error = ErrorOf(Uri());
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << endpoint;
    EXPECT_THAT(error.message, HasSubstr("AWS_ENDPOINT_URL")) << endpoint;
  }
}

TEST_F(S3Test, NamesAProxyThatIsNoUrl) {
  SetCredentials(S3Server::kKey, S3Server::kSecret, "http://store.example:9000");
  for (const char* proxy : {"proxy:3128", "http://", "no url"}) {
    ::setenv("http_proxy", proxy, 1);
    const Error error = ErrorOf(Uri());
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << proxy << error.ToString();
    EXPECT_THAT(error.message, HasSubstr("http_proxy")) << proxy;
  }
  ::unsetenv("http_proxy");
}

// It may come to answer: opening is no error, in time, but what is asked next.
Error ErrorOfListing(const std::string& uri) {
  const auto start = std::chrono::steady_clock::now();
  const auto store = OpenObjectStore(uri);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  EXPECT_TRUE(store.ok());
  return store.ok() ? (*store)->List().error() : store.error();
}

TEST_F(S3Test, NamesAnEndpointWhereNobodyListens) {
  const DeafPort port(/*held=*/false);
  SetCredentials(S3Server::kKey, S3Server::kSecret, port.url());
  const Error error = ErrorOfListing(Uri());
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("AWS_ENDPOINT_URL"));
}

TEST_F(S3Test, NamesAnEndpointThatNeverAnswers) {
  const DeafPort port(/*held=*/true);
  SetCredentials(S3Server::kKey, S3Server::kSecret, port.url());
  const Error error = ErrorOfListing(Uri());
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("AWS_ENDPOINT_URL"));
}

TEST_F(S3Test, NamesAnEndpointThatSpeaksNoTls) {
  SetCredentials(S3Server::kKey, S3Server::kSecret, "https" + server_->url().substr(4));
  const Error error = ErrorOfListing(Uri());
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("AWS_ENDPOINT_URL"));
}

}  // namespace
}  // namespace lockstep::checkpoint

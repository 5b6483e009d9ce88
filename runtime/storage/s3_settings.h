#pragma once
// How to reach an S3 store, from the environment: credentials, region, endpoint. Any thread.

#include <string>

#include "runtime/common/base/result.h"
#include "runtime/storage/store_use.h"

namespace lockstep::storage {

struct S3Settings {
  StoreUse use;
  std::string access_key;  // empty: the token of a workload identity
  std::string secret_key;
  std::string session_token;
  std::string region;
  std::string scheme = "https";
  std::string endpoint;  // host:port; empty: AWS
};

inline constexpr const char* kDefaultRegion = "us-east-1";

// AWS's own: "s3.eu-west-1.amazonaws.com".
[[nodiscard]] std::string AwsHost(const std::string& region);

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL, each after
// the prefix. kInvalidArgument says what the Secret lacks. `path` is "bucket/object".
[[nodiscard]] Result<S3Settings> S3SettingsFromEnvironment(const StoreUse& use, const std::string& path);

}  // namespace lockstep::storage

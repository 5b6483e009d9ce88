#pragma once
// How to reach an S3 store, from the environment: credentials, region, endpoint. Any thread.

#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::storage {

// Who asks, and for what. Errors name the fields.
struct S3Use {
  std::string field;  // "spec.checkpoint.uri": what names the bucket
  // "spec.checkpoint.secretRef"; empty: of a command, whose user sets the variables.
  std::string secret_field;
  // Before the name of each variable: the Secrets of two stores do not meet in the environment.
  std::string variable_prefix;
};

// Where its variables are set, for errors: "the Secret named by …".
[[nodiscard]] std::string PlaceOfVariables(const S3Use& use);

struct S3Settings {
  S3Use use;
  std::string access_key;  // empty: the token of a workload identity
  std::string secret_key;
  std::string session_token;
  std::string region;
  std::string scheme = "https";
  std::string endpoint;  // host:port; empty: AWS
};

inline constexpr const char* kDefaultRegion = "us-east-1";

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL, each after
// the prefix. kInvalidArgument says what the Secret lacks. `path` is "bucket/object".
[[nodiscard]] Result<S3Settings> S3SettingsFromEnvironment(const S3Use& use, const std::string& path);

}  // namespace lockstep::storage

#pragma once
// How to reach an S3 store, from the environment: credentials, region, endpoint. Any thread.

#include <string>

#include "runtime/common/base/result.h"
#include "runtime/storage/store_use.h"

namespace lockstep::storage {

// Where a request names its bucket: before the path, or before the host's name.
enum class Addressing { kPath, kVirtual };

struct S3Settings {
  StoreUse use;
  std::string access_key;  // empty: the token of a workload identity
  std::string secret_key;
  std::string session_token;
  std::string region;
  std::string scheme = "https";
  std::string endpoint;  // host:port; empty: AWS
  Addressing addressing = Addressing::kVirtual;
  std::string ca_file;  // PEM, of who may vouch for the server; empty: the system's
};

inline constexpr const char* kDefaultRegion = "us-east-1";

// AWS's own: "s3.eu-west-1.amazonaws.com".
[[nodiscard]] std::string AwsHost(const std::string& region);

// The variables of README.md, "S3", each after the prefix. kInvalidArgument says what the Secret lacks, or
// has wrong. `path` is "bucket/object".
[[nodiscard]] Result<S3Settings> S3SettingsFromEnvironment(const StoreUse& use, const std::string& path);

}  // namespace lockstep::storage

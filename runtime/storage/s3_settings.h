#pragma once
// Credentials, region and endpoint of an S3 store, from the environment. Any thread.

#include <string>

#include "runtime/common/base/result.h"
#include "runtime/storage/store_use.h"

namespace lockstep::storage {

// Where a request contains the bucket: in the path, or in the host name (virtual-hosted style).
enum class Addressing { kPath, kVirtual };

struct S3Settings {
  StoreUse use;
  std::string place;       // "bucket/object", for errors
  std::string access_key;  // empty: see S3Credentials
  std::string secret_key;
  std::string session_token;
  std::string region;
  std::string scheme = "https";
  std::string endpoint;  // host:port; empty: AWS
  Addressing addressing = Addressing::kVirtual;
  std::string ca_file;  // PEM file of trusted CAs; empty: the system's
  std::string proxy;    // URL; empty: none
};

inline constexpr const char* kDefaultRegion = "us-east-1";

// The AWS host of a region: "s3.eu-west-1.amazonaws.com".
[[nodiscard]] std::string AwsHost(const std::string& region);

// Reads the variables of README.md, "S3", each with the prefix. kInvalidArgument says which are missing or
// invalid. `path` is "bucket/object".
[[nodiscard]] Result<S3Settings> S3SettingsFromEnvironment(const StoreUse& use, const std::string& path);
// "spec.checkpoint.secretRef: s3://bucket/object <what>; name a Secret with …".
[[nodiscard]] Error LacksCredentials(const S3Settings& settings, const std::string& what);

}  // namespace lockstep::storage

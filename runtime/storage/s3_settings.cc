#include "runtime/storage/s3_settings.h"

#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/http/proxy.h"

namespace lockstep::storage {
namespace {

Error BadEndpoint(const StoreUse& use, const std::string& endpoint) {
  return {ErrorCode::kInvalidArgument, "AWS_ENDPOINT_URL in " + use.place_of_variables() + ": \"" + endpoint +
                                           "\" is no URL; write it as http://host:port or https://host:port"};
}

// Without an endpoint it is AWS.
Result<void> SetEndpoint(const StoreUse& use, S3Settings& settings) {
  const std::string endpoint = use.VariableOr("AWS_ENDPOINT_URL_S3", use.VariableOr("AWS_ENDPOINT_URL", ""));
  if (endpoint.empty()) return {};
  const std::size_t scheme_end = endpoint.find("://");
  if (scheme_end == std::string::npos) return BadEndpoint(settings.use, endpoint);
  settings.scheme = endpoint.substr(0, scheme_end);
  settings.endpoint = endpoint.substr(scheme_end + 3);
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  const bool is_http = settings.scheme == "http" || settings.scheme == "https";
  if (!is_http || settings.endpoint.empty()) return BadEndpoint(settings.use, endpoint);
  return {};
}

// A pair of keys, or none: S3Credentials looks for them then.
Result<void> SetKeys(const StoreUse& use, S3Settings& settings) {
  settings.access_key = use.VariableOr("AWS_ACCESS_KEY_ID", "");
  settings.secret_key = use.VariableOr("AWS_SECRET_ACCESS_KEY", "");
  settings.session_token = use.VariableOr("AWS_SESSION_TOKEN", "");
  if (settings.access_key.empty() && settings.secret_key.empty()) {
    // The SDK would find the keys of the checkpoints, whose variables have no prefix, and prefer them to all
    // others but a workload identity, which is asked for explicitly.
    const bool finds_those_of_another = !EnvOr("AWS_ACCESS_KEY_ID", "").empty();
    if (!finds_those_of_another || !EnvOr("AWS_WEB_IDENTITY_TOKEN_FILE", "").empty()) return {};
    return LacksCredentials(settings, "needs credentials");
  }
  if (settings.access_key.empty()) return LacksCredentials(settings, "lacks AWS_ACCESS_KEY_ID");
  if (settings.secret_key.empty()) return LacksCredentials(settings, "lacks AWS_SECRET_ACCESS_KEY");
  return {};
}

// AWS uses virtual-hosted buckets, most other servers use paths.
Result<void> SetAddressing(const StoreUse& use, S3Settings& settings) {
  const std::string style = use.VariableOr("AWS_S3_ADDRESSING_STYLE", "auto");
  if (style != "auto" && style != "path" && style != "virtual") {
    return Error{ErrorCode::kInvalidArgument, "AWS_S3_ADDRESSING_STYLE in " + use.place_of_variables() +
                                                  ": must be auto, path or virtual, not \"" + style + "\""};
  }
  const bool is_virtual = style == "virtual" || (style == "auto" && settings.endpoint.empty());
  settings.addressing = is_virtual ? Addressing::kVirtual : Addressing::kPath;
  return {};
}

Result<void> SetAuthority(const StoreUse& use, S3Settings& settings) {
  settings.ca_file = use.VariableOr("AWS_CA_BUNDLE", "");
  if (settings.ca_file.empty()) return {};
  const Result<std::string> content = ReadFile(settings.ca_file);
  if (content.ok() && content->find("-----BEGIN CERTIFICATE-----") != std::string::npos) return {};
  return Error{ErrorCode::kInvalidArgument,
               "AWS_CA_BUNDLE in " + use.place_of_variables() + ": " +
                   (content.ok() ? settings.ca_file + " has no certificate" : content.error().message) +
                   "; name a PEM file that is in the container"};
}

Result<void> SetProxy(S3Settings& settings) {
  const std::string host = settings.endpoint.empty() ? AwsHost(settings.region) : settings.endpoint;
  settings.proxy =
      http::ProxyFor(settings.scheme + "://" + host, [](const char* name) { return EnvOr(name, ""); });
  const std::size_t scheme_end = settings.proxy.find("://");
  const bool is_url =
      scheme_end != std::string::npos && scheme_end > 0 && settings.proxy.size() > scheme_end + 3;
  if (settings.proxy.empty() || is_url) return {};
  return Error{ErrorCode::kInvalidArgument, settings.use.field + ": s3://" + settings.place + ": " +
                                                settings.scheme + "_proxy in the environment is \"" +
                                                settings.proxy + "\"; write it as http://host:port"};
}

}  // namespace

std::string AwsHost(const std::string& region) {
  const bool is_china = region.starts_with("cn-");
  return "s3." + region + (is_china ? ".amazonaws.com.cn" : ".amazonaws.com");
}

Result<S3Settings> S3SettingsFromEnvironment(const StoreUse& use, const std::string& path) {
  S3Settings settings{.use = use, .place = path};
  LOCKSTEP_TRY(SetKeys(use, settings));
  LOCKSTEP_TRY(SetEndpoint(use, settings));
  LOCKSTEP_TRY(SetAddressing(use, settings));
  LOCKSTEP_TRY(SetAuthority(use, settings));
  settings.region = use.VariableOr("AWS_REGION", use.VariableOr("AWS_DEFAULT_REGION", kDefaultRegion));
  LOCKSTEP_TRY(SetProxy(settings));
  return settings;
}

Error LacksCredentials(const S3Settings& settings, const std::string& what) {
  const bool is_command = settings.use.secret_field.empty();
  return {ErrorCode::kInvalidArgument,
          (is_command ? settings.use.field : settings.use.secret_field) + ": s3://" + settings.place + " " +
              what + (is_command ? "; set " : "; name a Secret with ") +
              "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" + (is_command ? " in the environment" : "")};
}

}  // namespace lockstep::storage

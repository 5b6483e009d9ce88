#include "runtime/storage/gcs_settings.h"

#include "runtime/common/base/json.h"

namespace lockstep::storage {
namespace {

// Google's tools accept it with and without a scheme.
Result<void> SetEndpoint(const std::string& emulator, GcsSettings& settings) {
  const std::size_t scheme_end = emulator.find("://");
  settings.scheme = scheme_end == std::string::npos ? "http" : emulator.substr(0, scheme_end);
  settings.endpoint = scheme_end == std::string::npos ? emulator : emulator.substr(scheme_end + 3);
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  const bool is_http = settings.scheme == "http" || settings.scheme == "https";
  if (is_http && !settings.endpoint.empty()) return {};
  return Error{ErrorCode::kInvalidArgument,
               "STORAGE_EMULATOR_HOST in " + settings.use.place_of_variables() + ": \"" + emulator +
                   "\" is no URL; write it as http://host:port or https://host:port"};
}

}  // namespace

Result<GcsSettings> GcsSettingsFromEnvironment(const StoreUse& use) {
  GcsSettings settings{.use = use, .key = use.VariableOr("GOOGLE_CREDENTIALS", "")};
  const std::string emulator = use.VariableOr("STORAGE_EMULATOR_HOST", "");
  if (!emulator.empty()) LOCKSTEP_TRY(SetEndpoint(emulator, settings));
  settings.is_anonymous = settings.key.empty() && !emulator.empty();
  // Otherwise the first request would report missing credentials.
  if (!settings.key.empty() && !ParseJson(settings.key).ok()) {
    return Error{ErrorCode::kInvalidArgument,
                 "GOOGLE_CREDENTIALS in " + use.place_of_variables() +
                     ": is not JSON; put the content of a service account's key file there, not its path"};
  }
  return settings;
}

}  // namespace lockstep::storage

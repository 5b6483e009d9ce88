#include "runtime/storage/azure_client.h"

#include <arrow/filesystem/azurefs.h>

#include <algorithm>

#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"

namespace lockstep::storage {
namespace {

namespace fs = arrow::fs;

// Whether the environment names an identity: a service principal, or the workload identity of a pod.
bool NamesIdentity() {
  return !EnvOr("AZURE_CLIENT_SECRET", "").empty() || !EnvOr("AZURE_FEDERATED_TOKEN_FILE", "").empty();
}

// Azure's error code and the HTTP status are in the text, as in "Azure Error: [ContainerNotFound] 404 The …";
// for a HEAD only the status. `path` is "container/object".
Error FromArrow(const arrow::Status& status, const AzureSettings& settings, const std::string& path) {
  std::string text = status.ToString();
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::string variables = settings.use.place_of_variables();
  const std::string what = settings.use.field + ": abfs://" + path + " of account " + settings.account + ": ";
  if (ContainsAny(text, {"[ContainerNotFound]", "[FilesystemNotFound]"})) {
    return {ErrorCode::kNotFound, settings.use.field + ": container \"" + path.substr(0, path.find('/')) +
                                      "\" does not exist in account " + settings.account +
                                      "; create it, or correct the name"};
  }
  if (ContainsAny(text, {"] 404 ", "Path does not exist"}))
    return {ErrorCode::kNotFound, what + "not found (" + text + ")"};
  if (ContainsAny(text, {"] 403 ", "] 401 "})) {
    return {ErrorCode::kForbidden, what + "access denied; check AZURE_STORAGE_KEY, or what else gives " +
                                       "access, in " + variables + ", and its rights (" + text + ")"};
  }
  // The service that issues the tokens may be away.
  if (ContainsAny(text, {"AuthenticationException"}) && NamesIdentity()) {
    return {ErrorCode::kUnavailable, what +
                                         "no token for the identity that AZURE_CLIENT_ID names; check it, " +
                                         "and the network (" + text + ")"};
  }
  if (ContainsAny(text, {"AuthenticationException"})) {
    return {ErrorCode::kForbidden, what + "no credentials; set AZURE_STORAGE_KEY in " + variables +
                                       ", or give the pod a workload identity (" + text + ")"};
  }
  if (ContainsAny(text, {"] 400 "})) return {ErrorCode::kInvalidArgument, what + "refused (" + text + ")"};
  return {ErrorCode::kUnavailable, what + "no answer from the object store; check the account's name, " +
                                       variables + ", and the network (" + text + ")"};
}

arrow::Result<fs::AzureOptions> OptionsOf(const AzureSettings& settings) {
  fs::AzureOptions options;
  options.account_name = settings.account;
  options.blob_storage_scheme = options.dfs_storage_scheme = settings.scheme;
  options.blob_storage_authority = settings.blob_authority;
  options.dfs_storage_authority = settings.dfs_authority;
  // Otherwise Arrow copies what it sends.
  options.background_writes = false;
  if (!settings.key.empty()) {
    ARROW_RETURN_NOT_OK(options.ConfigureAccountKeyCredential(settings.key));
  } else if (!settings.sas_token.empty()) {
    // Azure's tools print the token with and without the question mark; Arrow appends it to URLs unchanged.
    const char* mark = settings.sas_token.starts_with('?') ? "" : "?";
    ARROW_RETURN_NOT_OK(options.ConfigureSASCredential(mark + settings.sas_token));
  }
  return options;
}

}  // namespace

Result<StoreClient> MakeAzureClient(const AzureSettings& settings) {
  const auto to_error = [settings](const arrow::Status& status, const std::string& path) {
    return FromArrow(status, settings, path);
  };
  const auto make = [&]() -> arrow::Result<std::shared_ptr<fs::AzureFileSystem>> {
    ARROW_ASSIGN_OR_RAISE(const fs::AzureOptions options, OptionsOf(settings));
    return fs::AzureFileSystem::Make(options);
  };
  const auto filesystem = make();
  if (!filesystem.ok()) return to_error(filesystem.status(), settings.path);
  return StoreClient(*filesystem, to_error, Traces::kEmptyOnes);
}

}  // namespace lockstep::storage

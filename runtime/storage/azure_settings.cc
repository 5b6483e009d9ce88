#include "runtime/storage/azure_settings.h"

#include <algorithm>
#include <string_view>

#include "runtime/common/base/strings.h"

namespace lockstep::storage {
namespace {

constexpr std::string_view kBlob = ".blob.";
constexpr std::string_view kDfs = ".dfs.";
constexpr const char* kForm = "abfs://container@account.dfs.core.windows.net/folder";

Error Bad(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

std::string NamedIn(const StoreUse& use, const char* variable) {
  return variable + std::string(" in ") + use.place_of_variables();
}

bool IsOfLettersAndDigits(std::string_view text, std::string_view others) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || others.find(c) != std::string_view::npos;
  });
}

// Two different account names would mean that the key belongs to another account.
Result<void> SetAccount(AzureSettings& settings, const std::string& account, const std::string& named_by) {
  if (!settings.account.empty() && settings.account != account) {
    return Bad(settings.use.field + ": the account is \"" + settings.account + "\" there and \"" + account +
               "\" by " + named_by + "; name the same one, or only one");
  }
  settings.account = account;
  return {};
}

// "account.dfs.core.windows.net", or the host of a national cloud.
Result<void> SetHost(AzureSettings& settings, const std::string& host) {
  const std::size_t dfs = host.find(kDfs);
  const bool is_known = dfs != std::string::npos && IsOfLettersAndDigits(host.substr(0, dfs), "") &&
                        dfs + kDfs.size() < host.size();
  if (!is_known)
    return Bad(settings.use.field + ": \"" + host + "\" is no account's host; write it as " + kForm);
  settings.account = host.substr(0, dfs);
  settings.dfs_authority = host.substr(dfs);
  settings.blob_authority = std::string(kBlob) + host.substr(dfs + kDfs.size());
  return {};
}

Result<void> SetPlace(AzureSettings& settings, const std::string& place) {
  const std::string authority = place.substr(0, place.find('/'));
  const std::size_t at = authority.find('@');
  const std::string container = authority.substr(0, at);
  if (!IsOfLettersAndDigits(container, "-$")) {
    return Bad(settings.use.field + ": \"" + container +
               "\" is no name of a container (lower-case letters, digits and -); write it as " + kForm);
  }
  settings.path = container + place.substr(authority.size());
  return at == std::string::npos ? Result<void>() : SetHost(settings, authority.substr(at + 1));
}

// "https://account.blob.core.windows.net", or "http://host:port/account" as in Azurite.
Result<void> SetBlobEndpoint(AzureSettings& settings, std::string endpoint, const std::string& named_by) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const Error bad = Bad(named_by + ": its BlobEndpoint \"" + endpoint +
                        "\" must be http(s)://account.blob.DOMAIN or http(s)://host:port/account");
  const std::size_t scheme_end = endpoint.find("://");
  if (scheme_end == std::string::npos) return bad;
  settings.scheme = endpoint.substr(0, scheme_end);
  const std::string rest = endpoint.substr(scheme_end + 3);
  const std::string host = rest.substr(0, rest.find('/'));
  if ((settings.scheme != "http" && settings.scheme != "https") || host.empty()) return bad;
  if (host.size() < rest.size()) {
    settings.blob_authority = settings.dfs_authority = host;
    return SetAccount(settings, rest.substr(host.size() + 1), named_by);
  }
  const std::size_t blob = host.find(kBlob);
  if (blob == std::string::npos || blob == 0) return bad;
  settings.blob_authority = host.substr(blob);
  settings.dfs_authority = std::string(kDfs) + host.substr(blob + kBlob.size());
  return SetAccount(settings, host.substr(0, blob), named_by);
}

// The text contains a key, so no error quotes it.
Result<void> SetFromConnectionString(AzureSettings& settings, const std::string& text) {
  const std::string named_by = NamedIn(settings.use, "AZURE_STORAGE_CONNECTION_STRING");
  std::string blob_endpoint;
  for (const std::string& part : Split(text, ';')) {
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos)
      return Bad(named_by + ": has a part without \"=\"; copy all of it, as in AccountName=…;AccountKey=…");
    const std::string name = part.substr(0, equals);
    const std::string value = part.substr(equals + 1);
    if (name == "AccountName") LOCKSTEP_TRY(SetAccount(settings, value, named_by));
    if (name == "AccountKey") settings.key = value;
    if (name == "SharedAccessSignature") settings.sas_token = value;
    if (name == "DefaultEndpointsProtocol") settings.scheme = value;
    if (name == "EndpointSuffix") {
      settings.blob_authority = std::string(kBlob) + value;
      settings.dfs_authority = std::string(kDfs) + value;
    }
    if (name == "BlobEndpoint") blob_endpoint = value;
  }
  return blob_endpoint.empty() ? Result<void>() : SetBlobEndpoint(settings, blob_endpoint, named_by);
}

bool IsBase64(std::string_view text) {
  const std::size_t padding = text.size() - std::min(text.size(), text.find_last_not_of('=') + 1);
  text.remove_suffix(padding);
  return (text.size() + padding) % 4 == 0 && padding <= 2 && !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
                  c == '/';
         });
}

}  // namespace

Result<AzureSettings> AzureSettingsFromEnvironment(const StoreUse& use, const std::string& place) {
  AzureSettings settings{.use = use};
  LOCKSTEP_TRY(SetPlace(settings, place));
  const std::string connection = use.VariableOr("AZURE_STORAGE_CONNECTION_STRING", "");
  const std::string account = use.VariableOr("AZURE_STORAGE_ACCOUNT", "");
  if (!connection.empty()) {
    LOCKSTEP_TRY(SetFromConnectionString(settings, connection));
  } else {
    if (!account.empty()) LOCKSTEP_TRY(SetAccount(settings, account, NamedIn(use, "AZURE_STORAGE_ACCOUNT")));
    settings.key = use.VariableOr("AZURE_STORAGE_KEY", "");
    settings.sas_token = use.VariableOr("AZURE_STORAGE_SAS_TOKEN", "");
  }
  if (settings.account.empty()) {
    return Bad(use.field + ": abfs://" + place + " names no account; write it as " + kForm + ", or set " +
               NamedIn(use, "AZURE_STORAGE_ACCOUNT"));
  }
  // Otherwise the first request would end in an exception about Base64.
  if (!settings.key.empty() && !IsBase64(settings.key)) {
    return Bad(NamedIn(use, connection.empty() ? "AZURE_STORAGE_KEY" : "AZURE_STORAGE_CONNECTION_STRING") +
               ": holds no account key, which is Base64; copy it from the account's access keys");
  }
  return settings;
}

}  // namespace lockstep::storage

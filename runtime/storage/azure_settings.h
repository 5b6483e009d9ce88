#pragma once
// How to reach Azure Blob Storage, from the URI and the environment: account, credentials, endpoint. Any
// thread.

#include <string>

#include "runtime/common/base/result.h"
#include "runtime/storage/store_use.h"

namespace lockstep::storage {

struct AzureSettings {
  StoreUse use;
  std::string account;
  std::string path;  // "container/folder"
  std::string key;
  std::string sas_token;  // without key and token: Azure's own search, as for the pod's workload identity
  std::string scheme = "https";
  // What begins with a dot follows the account; else the account is the first folder there (Azurite).
  std::string blob_authority = ".blob.core.windows.net";
  std::string dfs_authority = ".dfs.core.windows.net";
};

// `place` is what follows abfs://: "container@account.dfs.core.windows.net/folder", or "container/folder" of
// the account that the environment names. AZURE_STORAGE_CONNECTION_STRING alone, or AZURE_STORAGE_ACCOUNT,
// AZURE_STORAGE_KEY and AZURE_STORAGE_SAS_TOKEN, each after the prefix. kInvalidArgument says what is wrong
// with them.
[[nodiscard]] Result<AzureSettings> AzureSettingsFromEnvironment(const StoreUse& use,
                                                                 const std::string& place);

}  // namespace lockstep::storage

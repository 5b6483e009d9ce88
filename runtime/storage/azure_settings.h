#pragma once
// Account, credentials and endpoint of Azure Blob Storage, from the URI and the environment. Any thread.

#include <string>

#include "runtime/common/base/result.h"
#include "runtime/storage/store_use.h"

namespace lockstep::storage {

struct AzureSettings {
  StoreUse use;
  std::string account;
  std::string path;  // "container/folder"
  std::string key;
  // Without key and token: Azure's default credential chain, such as the pod's workload identity.
  std::string sas_token;
  std::string scheme = "https";
  // A value that begins with a dot is appended to the account; otherwise the account is the first path
  // component (Azurite).
  std::string blob_authority = ".blob.core.windows.net";
  std::string dfs_authority = ".dfs.core.windows.net";
};

// `place` is what follows abfs://: "container@account.dfs.core.windows.net/folder", or "container/folder" in
// the account that the environment names. Reads AZURE_STORAGE_CONNECTION_STRING alone, or
// AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY and AZURE_STORAGE_SAS_TOKEN, each with the prefix.
// kInvalidArgument says what is wrong with them.
[[nodiscard]] Result<AzureSettings> AzureSettingsFromEnvironment(const StoreUse& use,
                                                                 const std::string& place);

}  // namespace lockstep::storage

#pragma once
// A StoreClient of Azure Blob Storage, with and without hierarchical namespace. Any thread. Azure's client
// tries each request four times in about 6 s; neither this nor how long a server may be silent can be set
// through Arrow.

#include "runtime/storage/azure_settings.h"
#include "runtime/storage/store_client.h"

namespace lockstep::storage {

// Asks the store nothing yet. Its paths begin with the container, as settings.path does.
[[nodiscard]] Result<StoreClient> MakeAzureClient(const AzureSettings& settings);

}  // namespace lockstep::storage

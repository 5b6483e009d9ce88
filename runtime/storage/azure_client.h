#pragma once
// A StoreClient for Azure Blob Storage, with or without hierarchical namespace. Any thread. Azure's client
// tries each request four times in about 6 s; Arrow offers no option to change this, or to limit how long a
// server may be silent.

#include "runtime/storage/azure_settings.h"
#include "runtime/storage/store_client.h"

namespace lockstep::storage {

// Sends no request yet. Object paths begin with the container, as settings.path does.
[[nodiscard]] Result<StoreClient> MakeAzureClient(const AzureSettings& settings);

}  // namespace lockstep::storage

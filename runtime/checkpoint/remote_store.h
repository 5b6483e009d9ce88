#pragma once
// ObjectStore in a bucket of S3 or Google or a container of Azure, based on runtime/storage. See
// object_store.h.

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

// `path` is "bucket/prefix".
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& path, StoreUser user);
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenGcsStore(const std::string& path, StoreUser user);
// `place` is "container@account.dfs.core.windows.net/prefix" or "container/prefix".
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenAzureStore(const std::string& place, StoreUser user);

}  // namespace lockstep::checkpoint

#pragma once
// ObjectStore in a bucket of S3 or of Google, by runtime/storage. See object_store.h.

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

// `path` is "bucket/prefix".
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& path, StoreUser user);
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenGcsStore(const std::string& path, StoreUser user);

}  // namespace lockstep::checkpoint

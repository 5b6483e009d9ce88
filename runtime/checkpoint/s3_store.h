#pragma once
// ObjectStore in an S3 bucket, by runtime/storage. See object_store.h.

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

// `path` is "bucket/prefix".
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& path, StoreUser user);

}  // namespace lockstep::checkpoint

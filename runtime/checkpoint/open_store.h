#pragma once
// The store that a URI names.

#include <memory>
#include <string>

#include "runtime/checkpoint/object_store.h"

namespace lockstep::checkpoint {

// Opens the store and writes (and deletes) a probe object, so that a wrong bucket or credential is found
// before training begins, within about 5 s (minutes if a server of Google or Azure is silent).
// kInvalidArgument (unknown scheme, no credentials), kNotFound, kForbidden. A store that does not answer is
// opened anyway, because it may come back.
// URIs: file:///folder (created if absent), or s3://bucket/prefix, gs://bucket/prefix or
// abfs://container@account.dfs.core.windows.net/prefix, with credentials and endpoint from the environment
// (runtime/storage/s3_settings.h, gcs_settings.h, azure_settings.h).
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenObjectStore(const std::string& uri);

// For commands that work on stored checkpoints: opening creates and writes nothing, and a folder must exist.
// Errors name the URI and the environment, because there is no manifest and no Secret.
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> OpenForCommand(const std::string& uri);

}  // namespace lockstep::checkpoint

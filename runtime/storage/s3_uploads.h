#pragma once
// Multipart uploads to S3 that were neither completed nor aborted, for example because their process was
// killed. They are not objects, but use storage. Arrow can neither list nor abort them, so libcurl sends the
// requests, once and with a limit of 10 s. Any thread. Paths and errors are those of StoreClient.
// `settings` have keys (WithKeys). kUnsupported: the server does not support the request.

#include <string>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/storage/s3_settings.h"

namespace lockstep::storage {

struct UnfinishedUpload {
  std::string path;
  std::string id;
};

// Lists uploads whose path starts with `beginning` ("bucket/" and more); the first thousand.
[[nodiscard]] Result<std::vector<UnfinishedUpload>> ListUploads(const S3Settings& settings,
                                                                const std::string& beginning);
// Aborts the upload and deletes its parts; ok if it does not exist.
[[nodiscard]] Result<void> AbortUpload(const S3Settings& settings, const UnfinishedUpload& upload);

}  // namespace lockstep::storage

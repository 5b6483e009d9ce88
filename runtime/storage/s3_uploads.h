#pragma once
// Multipart uploads to S3 that were begun and neither completed nor aborted, as those of a process that was
// killed. They are no objects, but cost storage. Arrow can neither list nor abort them, so libcurl asks, once
// and for 10 s at most. Any thread. Paths and errors are those of StoreClient; kUnsupported: there are no
// keys to sign with, but a workload identity, or the server knows no such request.

#include <string>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/storage/s3_settings.h"

namespace lockstep::storage {

struct UnfinishedUpload {
  std::string path;
  std::string id;
};

// Of the objects whose path begins so ("bucket/" and more); the first thousand.
[[nodiscard]] Result<std::vector<UnfinishedUpload>> ListUploads(const S3Settings& settings,
                                                                const std::string& beginning);
// With its parts; ok where it is no longer there.
[[nodiscard]] Result<void> AbortUpload(const S3Settings& settings, const UnfinishedUpload& upload);

}  // namespace lockstep::storage

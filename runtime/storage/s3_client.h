#pragma once
// A StoreClient of an S3 store. Any thread.

#include <cstdint>

#include "runtime/common/base/clock.h"
#include "runtime/storage/s3_settings.h"
#include "runtime/storage/store_client.h"

namespace lockstep::storage {

// How long one operation may take. A request ends `silence` after the last byte (curl measures an average, so
// it takes about 7 s longer).
struct S3Patience {
  double silence_seconds = 0;
  int64_t retries = 0;
  Seconds retry_window = Seconds::max();  // since the client was made; no retry begins later
};

// Asks the store nothing yet.
[[nodiscard]] Result<StoreClient> MakeS3Client(const S3Settings& settings, const S3Patience& patience);

}  // namespace lockstep::storage

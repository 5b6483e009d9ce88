#pragma once
// A StoreClient for S3. Any thread.

#include <cstdint>

#include "runtime/common/base/clock.h"
#include "runtime/storage/s3_settings.h"
#include "runtime/storage/store_client.h"

namespace lockstep::storage {

// Limits of one operation. A request ends `silence_seconds` after the last byte (curl measures an average, so
// it takes about 7 s longer).
struct S3Patience {
  double silence_seconds = 0;
  int64_t retries = 0;
  Seconds retry_window = Seconds::max();  // since the client was made; no retry begins later
};

// Sends no request yet.
[[nodiscard]] Result<StoreClient> MakeS3Client(const S3Settings& settings, const S3Patience& patience);
// The settings with the keys of this moment. Errors of S3Credentials.
[[nodiscard]] Result<S3Settings> WithKeys(S3Settings settings);

}  // namespace lockstep::storage

#pragma once
// A StoreClient of Google Cloud Storage. Any thread. A request to a server that takes it and never answers
// ends after two minutes: Google's client has that limit, and Arrow lets no other one through.

#include "runtime/common/base/clock.h"
#include "runtime/storage/gcs_settings.h"
#include "runtime/storage/store_client.h"

namespace lockstep::storage {

// Asks the store nothing yet. No retry of an operation begins later than `retry_window` after its first try.
[[nodiscard]] Result<StoreClient> MakeGcsClient(const GcsSettings& settings, Seconds retry_window);

}  // namespace lockstep::storage

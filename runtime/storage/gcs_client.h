#pragma once
// A StoreClient for Google Cloud Storage. Any thread. A request to a server that accepts it and never answers
// ends after two minutes: that is the limit of Google's client, and Arrow offers no option to change it.

#include "runtime/common/base/clock.h"
#include "runtime/storage/gcs_settings.h"
#include "runtime/storage/store_client.h"

namespace lockstep::storage {

// Sends no request yet. No retry of an operation begins later than `retry_window` after its first try.
[[nodiscard]] Result<StoreClient> MakeGcsClient(const GcsSettings& settings, Seconds retry_window);

}  // namespace lockstep::storage

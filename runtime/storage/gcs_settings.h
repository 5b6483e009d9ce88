#pragma once
// Credentials and endpoint of Google Cloud Storage, from the environment. Any thread.

#include <string>

#include "runtime/common/base/result.h"
#include "runtime/storage/store_use.h"

namespace lockstep::storage {

struct GcsSettings {
  StoreUse use;
  std::string key;  // JSON of a service account; empty: see anonymous
  // True: no credentials, as for an emulator. False without a key: Google's default credentials
  // (GOOGLE_APPLICATION_CREDENTIALS, then the pod's workload identity).
  bool is_anonymous = false;
  std::string scheme = "https";
  std::string endpoint;  // host:port; empty: Google
};

// Reads GOOGLE_CREDENTIALS (the content of a key file) and STORAGE_EMULATOR_HOST, each with the prefix.
// kInvalidArgument says what is wrong with them.
[[nodiscard]] Result<GcsSettings> GcsSettingsFromEnvironment(const StoreUse& use);

}  // namespace lockstep::storage

#pragma once
// How to reach Google Cloud Storage, from the environment: credentials, endpoint. Any thread.

#include <string>

#include "runtime/common/base/result.h"
#include "runtime/storage/store_use.h"

namespace lockstep::storage {

struct GcsSettings {
  StoreUse use;
  std::string key;  // JSON of a service account; empty: see anonymous
  // No credentials, as of an emulator; else Google's own search: GOOGLE_APPLICATION_CREDENTIALS, then the
  // workload identity of the pod.
  bool is_anonymous = false;
  std::string scheme = "https";
  std::string endpoint;  // host:port; empty: Google
};

// GOOGLE_CREDENTIALS (the content of a key file) and STORAGE_EMULATOR_HOST, each after the prefix.
// kInvalidArgument says what is wrong with them.
[[nodiscard]] Result<GcsSettings> GcsSettingsFromEnvironment(const StoreUse& use);

}  // namespace lockstep::storage

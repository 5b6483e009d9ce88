#include "runtime/telemetry/nvml.h"

#include <dlfcn.h>

namespace lockstep::telemetry::nvml {
namespace {

// Loads a symbol into `function`; stores the name of the first missing one in `missing`.
template <typename Function>
void Find(void* library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

}  // namespace

Result<Library> Load(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Error{ErrorCode::kNotFound, ::dlerror()};
  Library found{};
  std::string missing;
  Find(library, "nvmlInit_v2", found.init, missing);
  Find(library, "nvmlShutdown", found.shutdown, missing);
  Find(library, "nvmlErrorString", found.error_text, missing);
  Find(library, "nvmlDeviceGetCount_v2", found.count, missing);
  Find(library, "nvmlDeviceGetHandleByIndex_v2", found.device_at, missing);
  Find(library, "nvmlDeviceGetHandleByUUID", found.device_of_uuid, missing);
  Find(library, "nvmlDeviceGetUUID", found.uuid, missing);
  Find(library, "nvmlDeviceGetName", found.name, missing);
  Find(library, "nvmlDeviceGetUtilizationRates", found.utilization, missing);
  Find(library, "nvmlDeviceGetMemoryInfo", found.memory, missing);
  Find(library, "nvmlDeviceGetPowerUsage", found.power, missing);
  Find(library, "nvmlDeviceGetTemperature", found.temperature, missing);
  Find(library, "nvmlDeviceGetTotalEccErrors", found.ecc_errors, missing);
  Find(library, "nvmlEventSetCreate", found.make_event_set, missing);
  Find(library, "nvmlDeviceRegisterEvents", found.register_events, missing);
  Find(library, "nvmlEventSetWait_v2", found.wait_for_event, missing);
  Find(library, "nvmlEventSetFree", found.free_event_set, missing);
  if (!missing.empty()) {
    return Error{ErrorCode::kNotFound,
                 path + " has no " + missing + ": a driver of release 460 or later has"};
  }
  return found;
}

}  // namespace lockstep::telemetry::nvml

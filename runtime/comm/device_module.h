#pragma once
// The library for GPUs, liblockstep_cuda.so, which is loaded when a job asks for GPUs: LibTorch's CUDA
// libraries and their dependencies are gigabytes that a CPU image does not contain.

#include <memory>
#include <string>

#include "runtime/comm/device_group.h"
#include "runtime/common/base/result.h"

namespace lockstep::comm {

// What the library's entry point returns.
struct DeviceModule {
  const char* version;  // LOCKSTEP_VERSION; both sides must be of the same build
  // Opens the device for local rank `local_rank` of the `ranks_here` ranks in the pod. kNotFound if the
  // machine has no device for this rank.
  Result<std::unique_ptr<DeviceBackend>> (*open)(int local_rank, int ranks_here);
};
inline constexpr const char* kDeviceModuleEntry = "lockstep_device_module";
using DeviceModuleEntry = const DeviceModule* (*)();

// ../lib/liblockstep_cuda.so, relative to this program's folder.
[[nodiscard]] std::string DefaultDeviceModule();

// From now on the calling thread's current device is the opened one. kNotFound, with the reason in one line,
// if the library or the device does not exist.
[[nodiscard]] Result<std::unique_ptr<DeviceBackend>> OpenDevice(const std::string& path, int local_rank,
                                                                int ranks_here);

}  // namespace lockstep::comm

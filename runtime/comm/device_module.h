#pragma once
// The library that brings a device, liblockstep_cuda.so, loaded when a job asks for GPUs: LibTorch's CUDA
// side and what it depends on are gigabytes that a CPU image does not have.

#include <memory>
#include <string>

#include "runtime/comm/device_group.h"
#include "runtime/common/base/result.h"

namespace lockstep::comm {

// What the library's entry point returns.
struct DeviceModule {
  const char* version;  // LOCKSTEP_VERSION: both sides are of one build
  // kNotFound where the machine has no device for this rank. Of `ranks_here` ranks in the pod this is
  // `local_rank`.
  Result<std::unique_ptr<DeviceBackend>> (*open)(int local_rank, int ranks_here);
};
inline constexpr const char* kDeviceModuleEntry = "lockstep_device_module";
using DeviceModuleEntry = const DeviceModule* (*)();

// Beside this program's folder: ../lib/liblockstep_cuda.so.
[[nodiscard]] std::string DefaultDeviceModule();

// The calling thread's tensors go to the device from here on. kNotFound, with the reason in one line, where
// the library or the device is not there.
[[nodiscard]] Result<std::unique_ptr<DeviceBackend>> OpenDevice(const std::string& path, int local_rank,
                                                                int ranks_here);

}  // namespace lockstep::comm

#include "runtime/comm/device_module.h"

#include <dlfcn.h>

#include <filesystem>

namespace lockstep::comm {

std::string DefaultDeviceModule() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path().parent_path() / "lib" / "liblockstep_cuda.so").string();
}

Result<std::unique_ptr<DeviceBackend>> OpenDevice(const std::string& path, int local_rank, int ranks_here) {
  // Never closed, because LibTorch keeps what a library has registered.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Error{ErrorCode::kNotFound, "loading " + path + ": " + ::dlerror()};
  auto* const entry = reinterpret_cast<DeviceModuleEntry>(::dlsym(library, kDeviceModuleEntry));
  if (entry == nullptr) return Error{ErrorCode::kNotFound, path + " has no " + kDeviceModuleEntry};
  const DeviceModule* const module = entry();
  if (std::string_view(module->version) != LOCKSTEP_VERSION) {
    return Error{ErrorCode::kNotFound,
                 path + " is of version " + module->version + ", and this is " + LOCKSTEP_VERSION};
  }
  return module->open(local_rank, ranks_here);
}

}  // namespace lockstep::comm

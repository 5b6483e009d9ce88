#include "runtime/cuda/machine_code.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <utility>

namespace lockstep::cuda {

Kernels::Kernels(std::vector<MachineCode> codes) : codes_(std::move(codes)) {}

cudaKernel_t Kernels::Find(const std::string& name) {
  const cudaLibrary_t library = LibraryOfTheCurrentGpu();
  if (library == nullptr) return nullptr;
  cudaKernel_t kernel = nullptr;
  C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, name.c_str()));
  return kernel;
}

cudaLibrary_t Kernels::LibraryOfTheCurrentGpu() {
  const cudaDeviceProp& gpu = *at::cuda::getCurrentDeviceProperties();
  const MachineCode* found = nullptr;
  for (const MachineCode& each : codes_) {
    if (each.architecture / 10 == gpu.major && each.architecture % 10 <= gpu.minor) found = &each;
  }
  if (found == nullptr) return nullptr;
  const MutexLock lock(mutex_);
  cudaLibrary_t& library = libraries_[found->architecture];
  if (library == nullptr) {
    C10_CUDA_CHECK(
        cudaLibraryLoadData(&library, found->code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  return library;
}

}  // namespace lockstep::cuda

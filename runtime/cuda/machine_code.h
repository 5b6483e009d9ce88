#pragma once
// Kernels of our own, compiled by compile_kernels.py for several architectures of GPUs.

#include <cuda_runtime_api.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/common/base/mutex.h"

namespace lockstep::cuda {

struct MachineCode {
  int architecture = 0;  // 90: compute capability 9.0; it runs on later ones with the same first digit
  std::span<const unsigned char> code;
};

// The kernels of one source on the GPUs of this process. Any thread.
class Kernels {
 public:
  explicit Kernels(std::vector<MachineCode> codes);

  // Null: there is no code for the current GPU. Throws LibTorch's exceptions.
  [[nodiscard]] cudaKernel_t Find(const std::string& name);

 private:
  [[nodiscard]] cudaLibrary_t LibraryOfTheCurrentGpu();

  const std::vector<MachineCode> codes_;
  Mutex mutex_;
  // By architecture. They live as long as the process: CUDA may be gone before static objects are.
  std::map<int, cudaLibrary_t> libraries_ LOCKSTEP_GUARDED_BY(mutex_);
};

// kernels/cross_entropy.cu
[[nodiscard]] std::vector<MachineCode> CrossEntropyCode();

}  // namespace lockstep::cuda

// The operator lockstep::cross_entropy_sum(outputs [n, classes], targets [n]) of tensors on a GPU: the sum over rows
// of the cross-entropy of class indices, differentiable once. It reads the outputs in their own format, once in each
// pass, and keeps no copy of them in float32; LibTorch's operators took 21 of the 86 ms of a step of GPT-2 on an H200
// for this. A target that is not from 0 to classes - 1 makes the sum not a number.

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "runtime/cuda/machine_code.h"

namespace lockstep::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kVectorBytes = 16;
constexpr int64_t kWarp = 32;
constexpr int64_t kMostThreads = 512;

// The suffix of the kernels' names; empty: they do not know the format.
std::string SuffixOf(at::ScalarType format) {
  switch (format) {
    case at::kBFloat16: return "bf16";
    case at::kHalf: return "fp16";
    case at::kFloat: return "fp32";
    default: return "";
  }
}

cudaKernel_t KernelOf(const std::string& pass, at::ScalarType format) {
  static Kernels kernels(CrossEntropyCode());
  const std::string suffix = SuffixOf(format);
  return suffix.empty() ? nullptr : kernels.Find("cross_entropy_" + pass + "_" + suffix);
}

bool IsAligned(const at::Tensor& matrix) {
  const int64_t row_bytes = matrix.size(1) * matrix.element_size();
  return reinterpret_cast<std::uintptr_t>(matrix.const_data_ptr()) % kVectorBytes == 0 &&
         row_bytes % kVectorBytes == 0;
}

// A block for each row, on the current stream.
template <typename... Arguments>
void Launch(cudaKernel_t kernel, const at::Tensor& outputs, Arguments... arguments) {
  if (outputs.size(0) == 0) return;
  const int64_t vectors = outputs.size(1) * outputs.element_size() / kVectorBytes;
  const int64_t threads = std::clamp((vectors + kWarp - 1) / kWarp * kWarp, kWarp, kMostThreads);
  std::array<void*, sizeof...(Arguments)> pointers = {static_cast<void*>(&arguments)...};
  C10_CUDA_CHECK(cudaLaunchKernel(
      reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(outputs.size(0))),
      dim3(static_cast<unsigned>(threads)), pointers.data(), 0, at::cuda::getCurrentCUDAStream()));
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& outputs, const at::Tensor& targets) {
    const c10::cuda::CUDAGuard guard(outputs.device());
    const at::Tensor log_of_sums = at::empty({outputs.size(0)}, outputs.options().dtype(at::kFloat));
    const at::Tensor losses = at::empty_like(log_of_sums);
    Launch(KernelOf("forward", outputs.scalar_type()), outputs, outputs.const_data_ptr(),
           targets.const_data_ptr<int64_t>(), log_of_sums.mutable_data_ptr<float>(),
           losses.mutable_data_ptr<float>(), outputs.size(1), IsAligned(outputs));
    context->save_for_backward({outputs, targets, log_of_sums});
    return losses.sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& outputs = saved[0];
    const c10::cuda::CUDAGuard guard(outputs.device());
    const at::Tensor scale = gradients[0].to(at::kFloat);
    const at::Tensor gradient = at::empty_like(outputs);
    Launch(KernelOf("backward", outputs.scalar_type()), outputs, outputs.const_data_ptr(),
           saved[1].const_data_ptr<int64_t>(), saved[2].const_data_ptr<float>(),
           scale.const_data_ptr<float>(), gradient.mutable_data_ptr(), outputs.size(1),
           IsAligned(outputs) && IsAligned(gradient));
    return {gradient, at::Tensor()};
  }
};

at::Tensor CrossEntropySum(const at::Tensor& outputs, const at::Tensor& targets) {
  TORCH_CHECK(outputs.is_cuda() && outputs.dim() == 2 && targets.dim() == 1 &&
                  targets.size(0) == outputs.size(0) && targets.scalar_type() == at::kLong,
              "cross_entropy_sum needs outputs [n, classes] and int64 targets [n] on a GPU");
  const c10::cuda::CUDAGuard guard(outputs.device());
  if (KernelOf("forward", outputs.scalar_type()) == nullptr)
    return at::cross_entropy_loss(outputs.to(at::kFloat), targets, {}, at::Reduction::Sum);
  return CrossEntropy::apply(outputs.contiguous(), targets.contiguous());
}

TORCH_LIBRARY(lockstep, library) {
  library.def("cross_entropy_sum(Tensor outputs, Tensor targets) -> Tensor", CrossEntropySum);
}

}  // namespace
}  // namespace lockstep::cuda

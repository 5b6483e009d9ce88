#pragma once
// Tensors of LibTorch <-> the bytes of a shard. Pure.

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct EncodedShard {
  std::string content;
  std::vector<TensorPlace> tensors;
};

// Of tensors that are contiguous, in host memory.
[[nodiscard]] EncodedShard EncodeShard(const std::vector<NamedTensor>& tensors);

// Adds the shard's tensors, which must be those of the manifest; kDataLoss where they are others.
[[nodiscard]] Result<void> DecodeShard(std::string_view file, const std::vector<TensorPlace>& expected,
                                       std::vector<NamedTensor>& tensors);

}  // namespace lockstep::checkpoint

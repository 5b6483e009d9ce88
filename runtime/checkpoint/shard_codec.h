#pragma once
// The layout of LibTorch tensors in a shard. Pure.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// The layout of a shard, without the tensors' bytes.
struct ShardLayout {
  std::string header;  // the first bytes of the shard
  // In the order of the layout: the widest elements first, so that each tensor is aligned.
  std::vector<NamedTensor> tensors;
  std::vector<TensorPlace> places;  // of each
  int64_t bytes = 0;                // of the whole shard
};
[[nodiscard]] ShardLayout LayOut(std::vector<NamedTensor> tensors);

// The tensor at this place, in the memory of `shard` (at::kByte). The place must be aligned.
[[nodiscard]] at::Tensor ViewOf(const at::Tensor& shard, const TensorPlace& place);

// The dtype as in TensorPlace: "F32".
[[nodiscard]] std::string DtypeOf(const at::Tensor& tensor);

}  // namespace lockstep::checkpoint

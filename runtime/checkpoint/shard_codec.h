#pragma once
// How tensors of LibTorch lie in a shard. Pure.

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

// A shard before it has its tensors' bytes.
struct ShardLayout {
  std::string header;                // what it begins with
  std::vector<NamedTensor> tensors;  // as they lie in it: the widest elements first, so that each is aligned
  std::vector<TensorPlace> places;   // of each
  int64_t bytes = 0;                 // of the whole shard
};
[[nodiscard]] ShardLayout LayOut(std::vector<NamedTensor> tensors);

// The tensor at this place, in the memory of `shard` (bytes; at::kByte). The place has to be aligned.
[[nodiscard]] at::Tensor ViewOf(const at::Tensor& shard, const TensorPlace& place);

// As the dtype of a TensorPlace: "F32".
[[nodiscard]] std::string DtypeOf(const at::Tensor& tensor);

}  // namespace lockstep::checkpoint

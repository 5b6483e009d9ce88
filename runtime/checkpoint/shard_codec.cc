#include "runtime/checkpoint/shard_codec.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/stored_checkpoints.h"

namespace lockstep::checkpoint {
namespace {

struct DtypeName {
  at::ScalarType type;
  const char* name;
};
constexpr DtypeName kDtypes[] = {{at::kFloat, "F32"},     {at::kDouble, "F64"}, {at::kHalf, "F16"},
                                 {at::kBFloat16, "BF16"}, {at::kLong, "I64"},   {at::kInt, "I32"},
                                 {at::kShort, "I16"},     {at::kChar, "I8"},    {at::kByte, "U8"},
                                 {at::kBool, "BOOL"}};

at::ScalarType TypeOfName(const std::string& name) {
  for (const DtypeName& entry : kDtypes) {
    if (name == entry.name) return entry.type;
  }
  LOCKSTEP_CHECK(false, "ParseHeader lets only known types through: " + name);
}

}  // namespace

ShardLayout LayOut(std::vector<NamedTensor> tensors) {
  const auto is_wider = [](const NamedTensor& a, const NamedTensor& b) {
    return a.tensor.element_size() > b.tensor.element_size();
  };
  std::stable_sort(tensors.begin(), tensors.end(), is_wider);
  SafetensorsHeader header;
  uint64_t end = 0;
  for (const NamedTensor& named : tensors) {
    const uint64_t begin = std::exchange(end, end + named.tensor.nbytes());
    header.tensors.push_back({named.name, DtypeOf(named.tensor), named.tensor.sizes().vec(), begin, end});
  }
  ShardLayout layout{.header = EncodeHeader(header.tensors, {{"format", "pt"}}),
                     .tensors = std::move(tensors)};
  header.data_offset = layout.header.size();
  layout.places = PlacesIn(header);
  layout.bytes = static_cast<int64_t>(header.data_offset + end);
  return layout;
}

at::Tensor ViewOf(const at::Tensor& shard, const TensorPlace& place) {
  return shard.narrow(0, place.offset, place.bytes).view(TypeOfName(place.dtype)).view(place.shape);
}

std::string DtypeOf(const at::Tensor& tensor) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.type == tensor.scalar_type()) return entry.name;
  }
  LOCKSTEP_CHECK(false, std::string("no safetensors type for ") + at::toString(tensor.scalar_type()));
}

}  // namespace lockstep::checkpoint

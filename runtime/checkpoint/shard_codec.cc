#include "runtime/checkpoint/shard_codec.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <string_view>
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

const char* NameOfType(at::ScalarType type) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.type == type) return entry.name;
  }
  LOCKSTEP_CHECK(false, std::string("no safetensors type for ") + at::toString(type));
}

at::ScalarType TypeOfName(const std::string& name) {
  for (const DtypeName& entry : kDtypes) {
    if (name == entry.name) return entry.type;
  }
  LOCKSTEP_CHECK(false, "ParseHeader lets only known types through: " + name);
}

bool IsAligned(const TensorPlace& place) {
  return static_cast<std::size_t>(place.offset) % at::elementSize(TypeOfName(place.dtype)) == 0;
}

// Of a place that is not aligned.
at::Tensor CopyOf(const at::Tensor& shard, const TensorPlace& place) {
  at::Tensor tensor = at::empty(place.shape, TypeOfName(place.dtype));
  const auto* bytes = shard.const_data_ptr<uint8_t>() + place.offset;
  if (place.bytes > 0) std::memcpy(tensor.data_ptr(), bytes, static_cast<std::size_t>(place.bytes));
  return tensor;
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
    header.tensors.push_back(
        {named.name, NameOfType(named.tensor.scalar_type()), named.tensor.sizes().vec(), begin, end});
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

Result<void> DecodeShard(const at::Tensor& shard, const std::vector<TensorPlace>& expected,
                         std::vector<NamedTensor>& tensors) {
  const auto bytes = static_cast<std::size_t>(shard.numel());
  const std::string_view file(static_cast<const char*>(shard.const_data_ptr()), bytes);
  LOCKSTEP_TRY(const SafetensorsHeader header, ParseHeader(file, bytes));
  const std::vector<TensorPlace> places = PlacesIn(header);
  LOCKSTEP_TRY(CheckTensors(places, expected));
  try {
    for (const TensorPlace& place : places)
      tensors.push_back({place.name, IsAligned(place) ? ViewOf(shard, place) : CopyOf(shard, place)});
  } catch (const std::exception& exception) {  // a shape that LibTorch refuses, or no memory for it
    return Error{ErrorCode::kDataLoss, exception.what()};
  }
  return {};
}

}  // namespace lockstep::checkpoint

#include "runtime/checkpoint/shard_codec.h"

#include <ATen/ATen.h>

#include <cstring>
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

}  // namespace

EncodedShard EncodeShard(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorEntry> entries;
  uint64_t offset = 0;
  for (const NamedTensor& named : tensors) {
    const uint64_t bytes = named.tensor.nbytes();
    entries.push_back({named.name, NameOfType(named.tensor.scalar_type()), named.tensor.sizes().vec(), offset,
                       offset + bytes});
    offset += bytes;
  }
  EncodedShard shard{.content = EncodeHeader(entries, {{"format", "pt"}}), .tensors = {}};
  const std::size_t data = shard.content.size();
  shard.content.resize(data + offset);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& entry = entries[i];
    const std::size_t bytes = entry.end - entry.begin;
    if (bytes > 0)
      std::memcpy(shard.content.data() + data + entry.begin, tensors[i].tensor.const_data_ptr(), bytes);
    shard.tensors.push_back({entry.name, entry.dtype, entry.shape, static_cast<int64_t>(data + entry.begin),
                             static_cast<int64_t>(bytes)});
  }
  return shard;
}

Result<void> DecodeShard(std::string_view file, const std::vector<TensorPlace>& expected,
                         std::vector<NamedTensor>& tensors) {
  LOCKSTEP_TRY(const SafetensorsHeader header, ParseHeader(file, file.size()));
  LOCKSTEP_TRY(CheckTensors(header, expected));
  try {
    for (const TensorEntry& entry : header.tensors) {
      const std::size_t bytes = entry.end - entry.begin;
      at::Tensor tensor = at::empty(entry.shape, TypeOfName(entry.dtype));
      if (bytes > 0) std::memcpy(tensor.data_ptr(), file.data() + header.data_offset + entry.begin, bytes);
      tensors.push_back({entry.name, std::move(tensor)});
    }
  } catch (const std::exception& exception) {  // a shape that LibTorch refuses, or no memory for it
    return Error{ErrorCode::kDataLoss, exception.what()};
  }
  return {};
}

}  // namespace lockstep::checkpoint

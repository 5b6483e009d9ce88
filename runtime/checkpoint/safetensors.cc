#include "runtime/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/common/base/json.h"

namespace lockstep::checkpoint {
namespace {

constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own limit

Error DamagedFile(const std::string& what) {
  return {ErrorCode::kDataLoss, "not a valid safetensors file: " + what};
}

uint64_t ReadLittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

// 0 for an unknown dtype.
uint64_t BytesPerElement(std::string_view dtype) {
  static const std::map<std::string_view, uint64_t> kSizes = {{"F64", 8}, {"I64", 8},  {"F32", 4}, {"I32", 4},
                                                              {"F16", 2}, {"BF16", 2}, {"I16", 2}, {"I8", 1},
                                                              {"U8", 1},  {"BOOL", 1}};
  const auto found = kSizes.find(dtype);
  return found == kSizes.end() ? 0 : found->second;
}

Result<TensorEntry> ParseTensor(const std::string& name, const Json& json) {
  TensorEntry tensor{.name = name, .dtype = StringAt(json, {"dtype"})};
  const Json* shape = FindJson(json, {"shape"});
  const Json* offsets = FindJson(json, {"data_offsets"});
  const auto numbers = [](const Json* list) {
    return list != nullptr && list->is_array() &&
           std::all_of(list->begin(), list->end(), [](const Json& item) {
             return item.is_number_unsigned() && item.get<uint64_t>() <= uint64_t{INT64_MAX};
           });
  };
  if (!numbers(shape) || !numbers(offsets) || offsets->size() != 2)
    return DamagedFile(name + ": bad shape or offsets");
  for (const Json& extent : *shape) tensor.shape.push_back(extent.get<int64_t>());
  tensor.begin = (*offsets)[0].get<uint64_t>();
  tensor.end = (*offsets)[1].get<uint64_t>();
  const auto bytes = ByteCount(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return DamagedFile(name + ": " + bytes.error().message);
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
    return DamagedFile(name + ": offsets do not match the shape");
  }
  return tensor;
}

}  // namespace

Result<uint64_t> ByteCount(const std::string& dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = BytesPerElement(dtype);
  if (bytes == 0) return Error{ErrorCode::kDataLoss, "unknown dtype \"" + dtype + "\""};
  for (const int64_t extent : shape) {
    if (extent < 0) return Error{ErrorCode::kDataLoss, "negative extent"};
    const auto factor = static_cast<uint64_t>(extent);
    if (factor != 0 && bytes > std::numeric_limits<uint64_t>::max() / factor)
      return Error{ErrorCode::kDataLoss, "shape overflows"};
    bytes *= factor;
  }
  return bytes;
}

std::string EncodeHeader(const std::vector<TensorEntry>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  for (const TensorEntry& tensor : tensors) {
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = DumpJson(json);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string encoded;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    encoded += static_cast<char>((text.size() >> (8 * i)) & 0xFFU);
  return encoded + text;
}

Result<uint64_t> DataOffset(std::string_view head, uint64_t file_bytes) {
  if (head.size() < kLengthBytes || file_bytes < kLengthBytes)
    return DamagedFile("shorter than its length field");
  const uint64_t length = ReadLittleEndian(head);
  if (length > kLongestHeader || length > file_bytes - kLengthBytes)
    return DamagedFile("header longer than the file");
  return kLengthBytes + length;
}

Result<SafetensorsHeader> ParseHeader(std::string_view head, uint64_t file_bytes) {
  LOCKSTEP_TRY(const uint64_t data_offset, DataOffset(head, file_bytes));
  LOCKSTEP_CHECK(head.size() >= data_offset, "the whole header is needed");
  const auto json = ParseJson(head.substr(kLengthBytes, data_offset - kLengthBytes));
  if (!json.ok() || !json->is_object()) return DamagedFile("header is not a JSON object");
  SafetensorsHeader header{.data_offset = data_offset};
  for (const auto& [name, value] : json->items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return DamagedFile("__metadata__ is not an object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) return DamagedFile("__metadata__." + key + " is not a string");
        header.metadata[key] = text.get<std::string>();
      }
      continue;
    }
    LOCKSTEP_TRY(TensorEntry tensor, ParseTensor(name, value));
    header.tensors.push_back(std::move(tensor));
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t expected = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != expected) return DamagedFile(tensor.name + ": overlap or gap");
    expected = tensor.end;
  }
  if (expected != file_bytes - header.data_offset) return DamagedFile("data section has the wrong length");
  return header;
}

}  // namespace lockstep::checkpoint

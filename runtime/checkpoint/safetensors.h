#pragma once
// The safetensors file format: 8 bytes little-endian header length, a JSON header, raw tensor bytes. Only the
// header is handled here; tensor bytes are copied by the checkpointer. Reading treats the input as hostile.
// Pure. Format: the safetensors project's README, "Format".

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

struct TensorEntry {
  std::string name;
  std::string dtype;  // F32, F64, F16, BF16, I64, I32, I16, I8, U8, BOOL
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes, from the start of the data section
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in order of begin, without gaps
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // where the data section starts in the file
};

inline constexpr uint64_t kLengthBytes = 8;

// Of all elements. kDataLoss for an unknown dtype, and a shape that cannot be.
[[nodiscard]] Result<uint64_t> ByteCount(const std::string& dtype, const std::vector<int64_t>& shape);

// Header length and header, padded with spaces to a multiple of 8 bytes. Tensors must be laid out without
// gaps.
[[nodiscard]] std::string EncodeHeader(const std::vector<TensorEntry>& tensors,
                                       const std::map<std::string, std::string>& metadata);
// Where the data section of a file of `file_bytes` starts, from what it begins with. kDataLoss where it is
// too short for its header.
[[nodiscard]] Result<uint64_t> DataOffset(std::string_view head, uint64_t file_bytes);
// Checks sizes, dtypes, shapes, order and overlaps. `head` is what the file begins with, up to the data at
// least. kDataLoss where anything is wrong.
[[nodiscard]] Result<SafetensorsHeader> ParseHeader(std::string_view head, uint64_t file_bytes);

}  // namespace lockstep::checkpoint

#pragma once
// The safetensors file format: 8 bytes of little-endian header length, a JSON header, raw tensor bytes. Only
// the header is handled here; the checkpointer copies the tensor bytes. Input that is read is not trusted.
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
  std::vector<TensorEntry> tensors;  // ordered by begin, without gaps
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // where the data section starts in the file
};

inline constexpr uint64_t kLengthBytes = 8;

// The bytes of all elements. kDataLoss for an unknown dtype or an impossible shape.
[[nodiscard]] Result<uint64_t> ByteCount(const std::string& dtype, const std::vector<int64_t>& shape);

// Header length and header, padded with spaces to a multiple of 8 bytes. The tensors must have no gaps
// between them.
[[nodiscard]] std::string EncodeHeader(const std::vector<TensorEntry>& tensors,
                                       const std::map<std::string, std::string>& metadata);
// Where the data section of a file of `file_bytes` starts, derived from the first bytes of the file.
// kDataLoss if the file is too short for its header.
[[nodiscard]] Result<uint64_t> DataOffset(std::string_view head, uint64_t file_bytes);
// Checks sizes, dtypes, shapes, order and overlaps. `head` is the beginning of the file, at least up to the
// data section. kDataLoss if anything is wrong.
[[nodiscard]] Result<SafetensorsHeader> ParseHeader(std::string_view head, uint64_t file_bytes);

}  // namespace lockstep::checkpoint

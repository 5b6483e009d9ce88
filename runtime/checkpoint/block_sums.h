#pragma once
// Checksums of an object's blocks, so that whoever reads a part of it can verify that part alone. Pure.

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

// Of what is written: a rank seldom reads much beside its part, and the manifest grows by 8 KB for each GB.
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;
inline constexpr std::size_t kDigitsOfASum = 8;

// The CRC-32 (of zlib, gzip and Python's zlib.crc32) of each `block_bytes` of the content, the last of what
// is left, as lower-case hex digits one after another.
[[nodiscard]] std::string BlockSums(std::string_view content, int64_t block_bytes);

}  // namespace lockstep::checkpoint

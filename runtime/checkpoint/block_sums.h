#pragma once
// Checksums of an object's blocks, so that a reader of a part can verify that part alone. Pure.

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

// The block size of new shards: a rank reads little beyond its part, and the manifest grows by 8 KB per GB.
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;
inline constexpr std::size_t kDigitsOfASum = 8;

// The CRC-32 (of zlib, gzip and Python's zlib.crc32) of each block of `block_bytes` (the last one may be
// shorter), as lower-case hex digits without separators.
[[nodiscard]] std::string BlockSums(std::string_view content, int64_t block_bytes);

}  // namespace lockstep::checkpoint

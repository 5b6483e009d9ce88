#include "runtime/checkpoint/block_sums.h"

#include <zlib.h>

namespace lockstep::checkpoint {

std::string BlockSums(std::string_view content, int64_t block_bytes) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string sums;
  for (std::size_t begin = 0; begin < content.size(); begin += static_cast<std::size_t>(block_bytes)) {
    const std::string_view block = content.substr(begin, static_cast<std::size_t>(block_bytes));
    const uLong sum =
        crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(block.data()), block.size());
    for (std::size_t digit = kDigitsOfASum; digit-- > 0;) sums += kHex[(sum >> (4 * digit)) & 0xFU];
  }
  return sums;
}

}  // namespace lockstep::checkpoint

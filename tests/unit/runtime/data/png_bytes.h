#pragma once
// PNG files written by hand, so that tests can write any kind, including invalid ones.

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::data {

enum class PngColour : char { kGrey = 0, kRgb = 2, kPalette = 3, kRgba = 6 };

struct PngKind {
  uint32_t width = 0;
  uint32_t height = 0;
  PngColour colour = PngColour::kRgb;
  char depth = 8;
};

inline std::string PngNumber(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

inline std::string PngChunk(const std::string& type, const std::string& content) {
  const std::string checked = type + content;
  const auto sum =
      ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return PngNumber(static_cast<uint32_t>(content.size())) + checked + PngNumber(static_cast<uint32_t>(sum));
}

// `pixels` row after row; `before` are chunks before them, such as a palette.
inline std::string PngBytes(const PngKind& kind, std::string_view pixels, const std::string& before = "") {
  std::string rows;
  for (std::size_t row = 0, bytes = pixels.size() / kind.height; row < pixels.size(); row += bytes)
    rows += '\0' + std::string(pixels.substr(row, bytes));  // no filter
  uLongf size = ::compressBound(rows.size());
  std::string packed(size, '\0');
  ::compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
             rows.size());
  packed.resize(size);
  const std::string header = PngNumber(kind.width) + PngNumber(kind.height) + kind.depth +
                             static_cast<char>(kind.colour) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + PngChunk("IHDR", header) + before + PngChunk("IDAT", packed) +
         PngChunk("IEND", "");
}

}  // namespace lockstep::data

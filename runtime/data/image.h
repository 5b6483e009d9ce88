#pragma once
// Decodes JPEG and PNG files. The bytes are not trusted: truncated, damaged or absurdly large images are
// errors, and sizes are checked before memory is allocated for them. Pure; any thread.

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/common/base/result.h"

namespace lockstep::data {

struct Image {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]: red, green, blue
};

// Larger than the images of cameras; 200 MB of pixels.
inline constexpr int64_t kMostPixels = int64_t{1} << 26;

// Converts every format (grey, palette, 16 bits, CMYK) to 8-bit red, green and blue. Transparent parts of a
// PNG become black. kDataLoss: the message is a phrase that can follow the file name.
[[nodiscard]] Result<Image> DecodeImage(std::string_view bytes);

}  // namespace lockstep::data

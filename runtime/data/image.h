#pragma once
// The pixels of a JPEG or PNG file. Its bytes are treated as hostile: what is cut, damaged or absurdly large
// is an error, and nothing is allocated by a size that was not looked at. Pure; any thread.

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

// More than cameras have, and 200 MB.
inline constexpr int64_t kMostPixels = int64_t{1} << 26;

// Whatever a file holds becomes red, green and blue of 8 bits each: grey, a palette, 16 bits, the inks of
// print. What a PNG leaves transparent is black. kDataLoss says what is wrong, as what follows a file's name.
[[nodiscard]] Result<Image> DecodeImage(std::string_view bytes);

}  // namespace lockstep::data

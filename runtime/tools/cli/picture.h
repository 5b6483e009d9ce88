#pragma once
// Writes pictures to files.

#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::cli {

// The format by the file's name. kInvalidArgument if it ends neither in .svg nor in .png.
enum class PictureFormat { kSvg, kPng };
[[nodiscard]] Result<PictureFormat> FormatOfPicture(const std::string& path);

// Writes the drawing in the format of the file's name. PNG needs the program rsvg-convert of librsvg:
// kUnsupported without it. After an error no file remains.
[[nodiscard]] Result<void> WritePicture(const std::string& svg, const std::string& path);

}  // namespace lockstep::cli

#pragma once
// Pictures as files.

#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::cli {

// What a file with that name is to be. kInvalidArgument where it ends neither in .svg nor in .png.
enum class PictureFormat { kSvg, kPng };
[[nodiscard]] Result<PictureFormat> FormatOfPicture(const std::string& path);

// Writes the drawing as what its name says. A PNG is made by the program rsvg-convert, of librsvg:
// kUnsupported where it is not there. On an error nothing is left behind.
[[nodiscard]] Result<void> WritePicture(const std::string& svg, const std::string& path);

}  // namespace lockstep::cli

#include "runtime/tools/cli/picture.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/common/base/file.h"

namespace lockstep::cli {
namespace {

constexpr const char* kConverter = "rsvg-convert";

// Waits for the program; its messages go to standard error.
Result<void> Convert(std::string from, std::string to) {
  std::string program = kConverter;
  std::string output = "--output";
  const std::array<char*, 5> words = {program.data(), output.data(), to.data(), from.data(), nullptr};
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, kConverter, nullptr, nullptr, words.data(), environ);
  if (failed == ENOENT) {
    return Error{ErrorCode::kUnsupported,
                 "PNG needs rsvg-convert, which is not installed; install it (Debian: librsvg2-bin), or "
                 "choose a name that ends in .svg"};
  }
  if (failed != 0) return Error{ErrorCode::kInternal, std::string(kConverter) + ": " + std::strerror(failed)};
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Error{ErrorCode::kInternal, std::string(kConverter) + " could not write " + to};
}

}  // namespace

Result<PictureFormat> FormatOfPicture(const std::string& path) {
  if (path.ends_with(".svg")) return PictureFormat::kSvg;
  if (path.ends_with(".png")) return PictureFormat::kPng;
  return Error{ErrorCode::kInvalidArgument, path + ": a picture's name must end in .svg or .png"};
}

Result<void> WritePicture(const std::string& svg, const std::string& path) {
  LOCKSTEP_TRY(const PictureFormat format, FormatOfPicture(path));
  if (format == PictureFormat::kSvg) return WriteFile(path, svg);
  const std::string drawing = path + ".svg";
  LOCKSTEP_TRY(WriteFile(drawing, svg));
  Result<void> converted = Convert(drawing, path);
  std::error_code ignored;
  std::filesystem::remove(drawing, ignored);
  if (!converted.ok()) std::filesystem::remove(path, ignored);
  return converted;
}

}  // namespace lockstep::cli

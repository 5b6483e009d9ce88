#include "runtime/common/base/resident_memory.h"

#include <cstdlib>
#include <string>

#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"

namespace lockstep {
namespace {

constexpr double kKibibyte = 1024;

double BytesAfter(std::string_view status, std::string_view name) {
  return kKibibyte * std::strtod(std::string(RestOfLine(status, name)).c_str(), nullptr);
}

}  // namespace

std::optional<double> ResidentBytesOf(std::string_view status) {
  constexpr std::string_view kAnonymous = "RssAnon:";  // a process that has ended has none
  if (RestOfLine(status, kAnonymous).empty()) return std::nullopt;
  return BytesAfter(status, kAnonymous) + BytesAfter(status, "RssFile:");
}

std::optional<double> ResidentBytes(pid_t process) {
  const Result<std::string> status = ReadFile("/proc/" + std::to_string(process) + "/status");
  return status.ok() ? ResidentBytesOf(*status) : std::nullopt;
}

}  // namespace lockstep

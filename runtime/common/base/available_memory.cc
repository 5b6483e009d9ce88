#include "runtime/common/base/available_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"

namespace lockstep {
namespace {

constexpr double kKibibyte = 1024;

// The first number in the rest of the line that begins with `start`.
std::optional<double> NumberAfter(std::string_view text, std::string_view start) {
  const std::string_view line = RestOfLine(text, start);
  const auto begin = line.find_first_of("0123456789");
  if (begin == std::string_view::npos) return std::nullopt;
  int64_t number = 0;
  const bool has_number =
      std::from_chars(line.data() + begin, line.data() + line.size(), number).ec == std::errc();
  return has_number ? std::optional<double>(static_cast<double>(number)) : std::nullopt;
}

std::optional<double> NumberIn(const std::string& file, std::string_view name) {
  const Result<std::string> text = ReadFile(file);
  return text.ok() ? NumberAfter(*text, name) : std::nullopt;
}

}  // namespace

std::string OwnMemoryGroup() {
  const Result<std::string> groups = ReadFile("/proc/self/cgroup");
  const std::string own = groups.ok() ? std::string(RestOfLine(*groups, "0::")) : std::string();
  // A container sees its own cgroup as the root of the mount, whatever path the kernel reports.
  for (std::string folder : {"/sys/fs/cgroup" + own, std::string("/sys/fs/cgroup")})
    if (ReadFile(folder + "/memory.events").ok()) return folder;
  return "";
}

std::optional<double> AvailableBytesOf(std::string_view meminfo) {
  const auto kibibytes = NumberAfter(meminfo, "MemAvailable:");
  return kibibytes.has_value() ? std::optional<double>(*kibibytes * kKibibyte) : std::nullopt;
}

std::optional<double> AvailableBytesOfGroup(const std::string& folder) {
  const auto limit = NumberIn(folder + "/memory.max", "");  // "max" is no number
  const auto used = NumberIn(folder + "/memory.current", "");
  if (!limit.has_value() || !used.has_value()) return std::nullopt;
  const auto cache = NumberIn(folder + "/memory.stat", "inactive_file ");
  return std::max(0.0, *limit - *used + cache.value_or(0));
}

std::optional<double> AvailableBytes() {
  const Result<std::string> meminfo = ReadFile("/proc/meminfo");
  const auto machine = meminfo.ok() ? AvailableBytesOf(*meminfo) : std::nullopt;
  const std::string folder = OwnMemoryGroup();
  const auto group = folder.empty() ? std::nullopt : AvailableBytesOfGroup(folder);
  if (!machine.has_value() || !group.has_value()) return machine.has_value() ? machine : group;
  return std::min(*machine, *group);
}

}  // namespace lockstep

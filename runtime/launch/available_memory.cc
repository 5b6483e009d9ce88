#include "runtime/launch/available_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>

#include "runtime/common/base/file.h"
#include "runtime/launch/oom_watch.h"

namespace lockstep::launch {
namespace {

constexpr double kKibibyte = 1024;

// The number that follows `name` at the beginning of a line.
std::optional<double> NumberAfter(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name)) {
      const auto begin = line.find_first_of("0123456789", name.size());
      int64_t number = 0;
      const bool has_number =
          begin != std::string_view::npos &&
          std::from_chars(line.data() + begin, line.data() + line.size(), number).ec == std::errc();
      return has_number ? std::optional<double>(static_cast<double>(number)) : std::nullopt;
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

std::optional<double> NumberIn(const std::string& file, std::string_view name) {
  const Result<std::string> text = ReadFile(file);
  return text.ok() ? NumberAfter(*text, name) : std::nullopt;
}

}  // namespace

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
  const std::string events = MemoryEventsFile();
  const auto group = events.empty()
                         ? std::nullopt
                         : AvailableBytesOfGroup(std::filesystem::path(events).parent_path().string());
  if (!machine.has_value() || !group.has_value()) return machine.has_value() ? machine : group;
  return std::min(*machine, *group);
}

}  // namespace lockstep::launch

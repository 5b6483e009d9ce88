#include "runtime/common/base/time_text.h"

#include <array>
#include <charconv>
#include <ctime>
#include <limits>
#include <optional>

namespace lockstep {
namespace {

std::string FormatSeconds(WallTime time) {
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return {text.data(), length};
}

// Reads exactly `width` digits at `position` and moves past them.
bool ReadDigits(std::string_view text, std::size_t& position, std::size_t width, int& value) {
  if (position + width > text.size()) return false;
  const char* begin = text.data() + position;
  for (std::size_t i = 0; i < width; ++i) {
    if (begin[i] < '0' || begin[i] > '9') return false;
  }
  std::from_chars(begin, begin + width, value);
  position += width;
  return true;
}

bool ReadLiteral(std::string_view text, std::size_t& position, char literal) {
  if (position >= text.size() || text[position] != literal) return false;
  ++position;
  return true;
}

bool ReadDateAndTime(std::string_view text, std::size_t& at, std::tm& parts) {
  int year = 0;
  int month = 0;
  const bool ok = ReadDigits(text, at, 4, year) && ReadLiteral(text, at, '-') &&
                  ReadDigits(text, at, 2, month) && ReadLiteral(text, at, '-') &&
                  ReadDigits(text, at, 2, parts.tm_mday) && ReadLiteral(text, at, 'T') &&
                  ReadDigits(text, at, 2, parts.tm_hour) && ReadLiteral(text, at, ':') &&
                  ReadDigits(text, at, 2, parts.tm_min) && ReadLiteral(text, at, ':') &&
                  ReadDigits(text, at, 2, parts.tm_sec);
  parts.tm_year = year - 1900;
  parts.tm_mon = month - 1;
  return ok && month >= 1 && month <= 12 && parts.tm_mday >= 1 && parts.tm_mday <= 31 && parts.tm_hour < 24 &&
         parts.tm_min < 60 && parts.tm_sec <= 60;
}

std::chrono::microseconds ReadFraction(std::string_view text, std::size_t& at) {
  if (!ReadLiteral(text, at, '.')) return {};
  int64_t micros = 0;
  int64_t unit = 100'000;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    micros += (text[at++] - '0') * unit;
    unit /= 10;
  }
  return std::chrono::microseconds(micros);
}

bool ReadZone(std::string_view text, std::size_t& at, std::chrono::minutes& offset) {
  if (ReadLiteral(text, at, 'Z')) return at == text.size();
  if (at >= text.size() || (text[at] != '+' && text[at] != '-')) return false;
  const int sign = text[at++] == '+' ? 1 : -1;
  int hours = 0;
  int minutes = 0;
  if (!ReadDigits(text, at, 2, hours) || !ReadLiteral(text, at, ':') || !ReadDigits(text, at, 2, minutes))
    return false;
  offset = std::chrono::minutes(sign * (hours * 60 + minutes));
  return at == text.size();
}

// "h", "m" or "s" at the beginning of `text`; nullopt: no unit.
std::optional<int64_t> SecondsOfUnit(std::string_view text) {
  if (text.starts_with('h')) return 3600;
  if (text.starts_with('m')) return 60;
  if (text.starts_with('s')) return 1;
  return std::nullopt;
}

}  // namespace

std::string FormatTime(WallTime time) { return FormatSeconds(time) + "Z"; }

std::string FormatMicroTime(WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time - seconds).count();
  std::string digits = std::to_string(micros);
  digits.insert(0, 6 - digits.size(), '0');
  return FormatSeconds(time) + "." + digits + "Z";
}

Result<WallTime> ParseTime(std::string_view text) {
  std::tm parts{};
  std::size_t at = 0;
  const Error bad{ErrorCode::kInvalidArgument,
                  "\"" + std::string(text) + "\" is not an RFC 3339 time such as 2026-01-02T03:04:05Z"};
  if (!ReadDateAndTime(text, at, parts)) return bad;
  const auto fraction = ReadFraction(text, at);
  std::chrono::minutes offset{};
  if (!ReadZone(text, at, offset)) return bad;
  return std::chrono::system_clock::from_time_t(timegm(&parts)) + fraction - offset;
}

Result<std::chrono::seconds> ParseDuration(std::string_view text) {
  constexpr int64_t kMostSeconds = int64_t{365} * 86'400;
  const Error bad{ErrorCode::kInvalidArgument,
                  "\"" + std::string(text) + "\" is not a duration such as 90s, 5m, 1h or 1h30m"};
  int64_t total = 0;
  // units descend from hours to seconds, each at most once
  int64_t last_unit = std::numeric_limits<int64_t>::max();
  for (std::string_view rest = text; !rest.empty();) {
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc()) return bad;
    const bool is_plain = end == text.data() + text.size() && rest.size() == text.size();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    const auto unit = is_plain ? 1 : SecondsOfUnit(rest);
    if (!unit || *unit >= last_unit) return bad;
    last_unit = *unit;
    if (!is_plain) rest.remove_prefix(1);
    total += int64_t{number} * *unit;
  }
  if (total < 1 || total > kMostSeconds) return bad;
  return std::chrono::seconds(total);
}

}  // namespace lockstep

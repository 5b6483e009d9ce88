#include "runtime/common/base/strings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "runtime/common/base/result.h"

namespace lockstep {

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += separator;
    joined += parts[i];
  }
  return joined;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

bool ContainsAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

std::string_view RestOfLine(std::string_view text, std::string_view start) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(start)) return line.substr(start.size());
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return "";
}

std::string Truncate(std::string_view text, std::size_t limit) {
  static constexpr std::string_view kMark = "…";
  if (text.size() <= limit) return std::string(text);
  std::size_t cut = limit > kMark.size() ? limit - kMark.size() : 0;
  // Bytes 10xxxxxx continue a character: step back to its start.
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
  return std::string(text.substr(0, cut)) + std::string(kMark);
}

std::string RandomHex(std::size_t bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::vector<unsigned char> random(bytes);
  // Not std::random_device: the static libstdc++ takes it from glibc 2.36, which not all images have.
  LOCKSTEP_CHECK(getentropy(random.data(), random.size()) == 0,
                 std::string("no random numbers: ") + std::strerror(errno));
  std::string text;
  for (const unsigned char value : random) {
    text += kDigits[value >> 4U];
    text += kDigits[value & 0xFU];
  }
  return text;
}

std::string StableHash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016" PRIx64, hash);
  return digits.data();
}

std::string FormatNumber(double value, int significant_digits) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.*g", significant_digits, value);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace lockstep

#include "runtime/tools/checkpoint_tool/text.h"

#include <algorithm>
#include <array>

#include "runtime/common/base/strings.h"

namespace lockstep::checkpoint_tool {

std::string Printable(std::string_view text) {
  std::string printable(text);
  std::replace_if(
      printable.begin(), printable.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return printable;
}

std::string SizeText(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (size >= 999.5 && unit + 1 < kUnits.size()) {
    size /= 1000;
    ++unit;
  }
  return FormatNumber(size, 3) + " " + kUnits.at(unit);
}

}  // namespace lockstep::checkpoint_tool

#include "runtime/common/command_line/text.h"

#include <algorithm>
#include <cmath>

#include "runtime/common/base/strings.h"

namespace lockstep::command_line {
namespace {

std::string TwoUnits(int64_t count, int64_t per_unit, const char* unit, const char* part) {
  const std::string whole = std::to_string(count / per_unit) + " " + unit;
  const int64_t rest = count % per_unit;
  return rest == 0 ? whole : whole + " " + std::to_string(rest) + " " + part;
}

}  // namespace

std::string DurationText(double seconds) {
  seconds = std::max(0.0, seconds);
  if (seconds < 9.95) return FormatNumber(std::round(seconds * 10) / 10, 2) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return TwoUnits(whole, 60, "min", "s");
  if (whole < 86'400) return TwoUnits(whole / 60, 60, "h", "min");
  return TwoUnits(whole / 3600, 24, "d", "h");
}

std::string AgeText(WallTime since, WallTime now) {
  return DurationText(std::floor(Seconds(now - since).count()));
}

std::string CountText(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string OneLine(std::string_view text) {
  std::string line(text.substr(0, text.find('\n')));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; },
      '?');
  return line;
}

Lines Columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 1);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  Lines lines;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::string cell = row[i].empty() ? "-" : row[i];
      if (i + 1 < row.size()) cell.resize(widths[i] + 2, ' ');
      line += cell;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace lockstep::command_line

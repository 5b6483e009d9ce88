#pragma once
// Formats values for a terminal. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"

namespace lockstep::command_line {

using Lines = std::vector<std::string>;

// At most two units: "0.4 s", "40 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
[[nodiscard]] std::string DurationText(double seconds);
// The time since then, formatted likewise.
[[nodiscard]] std::string AgeText(WallTime since, WallTime now);
// "1 rank", "2 ranks".
[[nodiscard]] std::string CountText(int64_t count, std::string_view noun);
// The first line without control characters, because any program may have written it.
[[nodiscard]] std::string OneLine(std::string_view text);
// Rows of cells as lines with aligned columns; an empty cell becomes "-".
[[nodiscard]] Lines Columns(const std::vector<std::vector<std::string>>& rows);

}  // namespace lockstep::command_line

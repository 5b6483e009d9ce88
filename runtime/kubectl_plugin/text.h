#pragma once
// How things are written for people at a terminal. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"

namespace lockstep::kubectl_plugin {

using Lines = std::vector<std::string>;

// Two units at most: "0.4 s", "40 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
[[nodiscard]] std::string DurationText(double seconds);
// The same of the time since then.
[[nodiscard]] std::string AgeText(WallTime since, WallTime now);
// "1 rank", "2 ranks".
[[nodiscard]] std::string CountText(int64_t count, std::string_view noun);
// The first line, without what would control a terminal: it may be of a program that anybody wrote.
[[nodiscard]] std::string OneLine(std::string_view text);
// Rows of cells as lines with equal columns; an empty cell becomes "-".
[[nodiscard]] Lines Columns(const std::vector<std::vector<std::string>>& rows);

}  // namespace lockstep::kubectl_plugin

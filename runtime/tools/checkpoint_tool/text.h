#pragma once
// What is read from a store, as text for a terminal. Pure.

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::checkpoint_tool {

// Without control characters, which could do something to a terminal.
[[nodiscard]] std::string Printable(std::string_view text);
[[nodiscard]] std::string SizeText(int64_t bytes);  // "1.2 MB"

}  // namespace lockstep::checkpoint_tool

#pragma once
// Limits of a field, stated with the field's description: in the resource (runtime/common/api) and in
// messages (runtime/common/protocol). JsonReader (json.h) checks them. Plain values.

#include <cstddef>
#include <optional>

namespace lockstep {

// Bounds of a number (for a list of numbers, of each entry), of a list's length and of a text's length.
struct Limits {
  std::optional<double> min;
  std::optional<double> above;  // an exclusive minimum
  std::optional<double> max;
  std::optional<std::size_t> min_items;
  std::optional<std::size_t> max_items;
  std::optional<std::size_t> max_length;
};

}  // namespace lockstep

#pragma once
// What a field may hold, stated where the field is described: in the resource (runtime/common/api) and in messages
// (runtime/common/protocol). JsonReader (json.h) checks it. Plain values.

#include <cstddef>
#include <optional>

namespace lockstep {

// Bounds of a number (of each entry, in a list of numbers), of a list's length, of a text's length.
struct Limits {
  std::optional<double> min;
  std::optional<double> above;  // an exclusive minimum
  std::optional<double> max;
  std::optional<std::size_t> min_items;
  std::optional<std::size_t> max_items;
  std::optional<std::size_t> max_length;
};

}  // namespace lockstep

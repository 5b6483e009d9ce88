#pragma once
// What the description of a struct's fields consists of (fields.h), in the resource (runtime/common/api) and
// in messages (runtime/common/protocol). JsonReader (json.h) checks the limits. Plain values.

#include <cstddef>
#include <optional>
#include <type_traits>

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

// The struct as the visitor A of its fields may use it: to fill it in, or only to look at it.
template <typename A, typename T>
using Of = std::conditional_t<A::kReading, T, const T>;

}  // namespace lockstep

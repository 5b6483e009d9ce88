#pragma once
// Names of enumerators in manifests. An enum supports this by specialising EnumNames with its names in the
// order of its enumerators, which count from zero. Pure.

#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep::api {

template <typename E>
struct EnumNames;  // static constexpr std::string_view values[] = {…};

template <typename E>
[[nodiscard]] constexpr std::string_view NameOf(E value) {
  static_assert(std::is_enum_v<E>);
  return EnumNames<E>::values[static_cast<std::size_t>(value)];
}

template <typename E>
[[nodiscard]] constexpr std::optional<E> EnumFromName(std::string_view name) {
  for (std::size_t index = 0; index < std::size(EnumNames<E>::values); ++index) {
    if (EnumNames<E>::values[index] == name) return static_cast<E>(index);
  }
  return std::nullopt;
}

// "mlp, cnn or resnet18": for error messages that list the valid values.
template <typename E>
[[nodiscard]] std::string EnumChoices() {
  std::string text;
  const std::size_t count = std::size(EnumNames<E>::values);
  for (std::size_t index = 0; index < count; ++index) {
    if (index > 0) text += index + 1 == count ? " or " : ", ";
    text += EnumNames<E>::values[index];
  }
  return text;
}

}  // namespace lockstep::api

#pragma once
// Words of enumerators in manifests, statuses and messages. An enum supports this with a function in its own
// namespace, with the words in the order of its enumerators, which count from zero:
//
//   enum class Balance { kEqual, kSpeed };
//   [[nodiscard]] constexpr auto WordsOf(Balance) { return std::to_array<std::string_view>({"Equal", "Speed"}); }
//
// Pure.

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

template <typename E>
[[nodiscard]] constexpr std::string_view NameOf(E value) {
  return WordsOf(value).at(static_cast<std::size_t>(value));
}

template <typename E>
[[nodiscard]] constexpr std::optional<E> EnumFromName(std::string_view name) {
  constexpr auto kWords = WordsOf(E{});
  for (std::size_t index = 0; index < kWords.size(); ++index) {
    if (kWords.at(index) == name) return static_cast<E>(index);
  }
  return std::nullopt;
}

// "mlp, cnn or resnet18": for error messages that list the valid values.
template <typename E>
[[nodiscard]] std::string EnumChoices() {
  constexpr auto kWords = WordsOf(E{});
  std::string text;
  for (std::size_t index = 0; index < kWords.size(); ++index) {
    if (index > 0) text += index + 1 == kWords.size() ? " or " : ", ";
    text += kWords.at(index);
  }
  return text;
}

}  // namespace lockstep

#pragma once
// Text functions that the standard library of our compiler lacks. Pure.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

[[nodiscard]] std::string Join(const std::vector<std::string>& parts, std::string_view separator);
[[nodiscard]] std::vector<std::string> Split(std::string_view text, char separator);
[[nodiscard]] bool ContainsAny(std::string_view text, std::initializer_list<std::string_view> words);
// Of the line that begins with `start`, what follows it; empty if there is none.
[[nodiscard]] std::string_view RestOfLine(std::string_view text, std::string_view start);
// At most `limit` bytes, cut at a UTF-8 boundary and marked with "…". API messages are limited in length.
[[nodiscard]] std::string Truncate(std::string_view text, std::size_t limit);
// 16 random hex digits per 8 bytes, from the system's generator: identities and tokens.
[[nodiscard]] std::string RandomHex(std::size_t bytes);
// 16 hex digits of FNV-1a: the same on every machine and in every version. Not cryptographic.
[[nodiscard]] std::string StableHash(std::string_view text);
// Like "%.*g".
[[nodiscard]] std::string FormatNumber(double value, int significant_digits = 4);

}  // namespace lockstep

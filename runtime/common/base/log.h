#pragma once
// Structured log: one JSON line per record on stderr, a constant message plus fields. Any thread. Bind fields
// once per process (job, rank) or per logger (round).

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::log {

enum class Level { kDebug, kInfo, kWarning, kError };

using Value = std::variant<std::string, int64_t, double, bool>;

struct Field {
  Field(std::string_view name, std::string_view text) : key(name), value(std::string(text)) {}
  Field(std::string_view name, const char* text) : key(name), value(std::string(text)) {}
  Field(std::string_view name, const std::string& text) : key(name), value(text) {}
  Field(std::string_view name, bool flag) : key(name), value(flag) {}
  Field(std::string_view name, double number) : key(name), value(number) {}
  template <std::integral Integer>
  Field(std::string_view name, Integer number) : key(name), value(static_cast<int64_t>(number)) {}

  std::string key;
  Value value;
};

using Fields = std::initializer_list<Field>;

// Fields added to every later record of this process. Call at start, before other threads log.
void Bind(Fields fields);
void SetLevel(Level level);
// "debug", "info", "warning" or "error"; any other text leaves the level unchanged.
void SetLevel(std::string_view name);

void Write(Level level, std::string_view message, Fields fields);
inline void Debug(std::string_view message, Fields fields = {}) { Write(Level::kDebug, message, fields); }
inline void Info(std::string_view message, Fields fields = {}) { Write(Level::kInfo, message, fields); }
inline void Warning(std::string_view message, Fields fields = {}) { Write(Level::kWarning, message, fields); }
inline void Error(std::string_view message, Fields fields = {}) { Write(Level::kError, message, fields); }

}  // namespace lockstep::log

#pragma once
// The one JSON value type and the readers that turn a wrong type into an Error with the path of the field.
// Pure; nlohmann's exceptions stay inside json.cc.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/limits.h"
#include "runtime/common/base/result.h"

namespace lockstep {

using Json = nlohmann::json;

// Deeper nesting is rejected, because writing such a value overflows the stack.
inline constexpr int kMaxJsonNesting = 256;
[[nodiscard]] Result<Json> ParseJson(std::string_view text);
[[nodiscard]] std::string DumpJson(const Json& value);  // one line; invalid UTF-8 is replaced

// The value at `keys` below `value`; nullptr if a key is absent or null, or its parent is no object.
[[nodiscard]] const Json* FindJson(const Json& value, std::initializer_list<std::string_view> keys);
// Lenient readers for documents of other systems: return the fallback if the value is absent or of another
// type.
[[nodiscard]] std::string StringAt(const Json& value, std::initializer_list<std::string_view> keys,
                                   std::string_view fallback = "");
[[nodiscard]] int64_t IntAt(const Json& value, std::initializer_list<std::string_view> keys,
                            int64_t fallback = 0);
[[nodiscard]] bool BoolAt(const Json& value, std::initializer_list<std::string_view> keys,
                          bool fallback = false);

// Strict reader of one object: collects all violations with their paths ("spec.worker.replicas: must be an
// integer"), so that a user sees all of them at once. Absent and null fields leave the target unchanged.
class JsonReader {
 public:
  JsonReader(const Json& object, std::string path, std::vector<std::string>& violations);

  void Read(std::string_view key, std::string& target);
  void Read(std::string_view key, bool& target);
  void Read(std::string_view key, int32_t& target);
  void Read(std::string_view key, int64_t& target);
  void Read(std::string_view key, double& target);
  void Read(std::string_view key, std::vector<int64_t>& target);
  void Read(std::string_view key, std::vector<std::string>& target);
  template <typename T>
  void Read(std::string_view key, std::optional<T>& target) {
    if (!Has(key)) return;
    T value{};
    Read(key, value);
    target = value;
  }

  [[nodiscard]] bool Has(std::string_view key) const;
  // A reader of the object under `key`, or of an empty object if it is absent or of another type.
  [[nodiscard]] JsonReader Object(std::string_view key);
  [[nodiscard]] const Json& Array(std::string_view key);  // an empty array if absent
  [[nodiscard]] const Json& json() const { return object_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string PathOf(std::string_view key) const;
  void Violation(std::string_view key, std::string_view problem);
  // Adds a violation for each limit that is exceeded, with the limit in the message.
  void CheckNumber(std::string_view key, double number, const Limits& limits);
  void CheckLength(std::string_view key, std::string_view text, const Limits& limits);
  void CheckCount(std::string_view key, std::size_t count, const Limits& limits);
  // Adds a violation for each key that was not accessed by Read, Has, Object or Array, with the most similar
  // known key.
  void RejectUnknownKeys();

 private:
  const Json* Find(std::string_view key, bool (Json::*is_type)() const noexcept, std::string_view type_name);

  const Json& object_;
  std::string path_;
  std::vector<std::string>& violations_;
  mutable std::vector<std::string> known_keys_;
};

}  // namespace lockstep

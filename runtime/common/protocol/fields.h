#pragma once
// Reads and writes protocol structs field by field. A struct lists its fields once, in `template <class V>
// void Visit(Struct&, V&)`, with their limits (message_limits.h); both directions use that list. A message
// with a field outside of its limits is rejected as a whole. Pure.

#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/limits.h"
#include "runtime/common/base/strings.h"

namespace lockstep::protocol {

class FieldWriter {
 public:
  // Truncates a text that is too long, because the reader would reject the whole message.
  template <typename T>
  void operator()(std::string_view key, T& value, const Limits& limits = {}) {
    Json& json = json_[std::string(key)] = ToJson(value);
    if constexpr (std::is_same_v<T, std::string>) {
      if (limits.max_length && value.size() > *limits.max_length) json = Truncate(value, *limits.max_length);
    }
  }
  [[nodiscard]] Json Take() { return std::move(json_); }

  template <typename T>
  static Json ToJson(T& value) {
    if constexpr (std::is_enum_v<T>) {
      return static_cast<int>(value);
    } else if constexpr (requires(FieldWriter & writer) { Visit(value, writer); }) {
      FieldWriter writer;
      Visit(value, writer);
      return writer.Take();
    } else if constexpr (requires { value.push_back(typename T::value_type{}); } &&
                         !std::is_same_v<T, std::string>) {
      Json list = Json::array();
      for (auto& item : value) list.push_back(ToJson(item));
      return list;
    } else {
      return Json(value);
    }
  }

 private:
  Json json_ = Json::object();
};

class FieldReader {
 public:
  FieldReader(const Json& json, std::string path, std::vector<std::string>& violations)
      : reader_(json, std::move(path), violations), violations_(violations) {}

  template <typename T>
  void operator()(std::string_view key, T& value, const Limits& limits = {}) {
    if constexpr (std::is_enum_v<T>) {
      int32_t number = static_cast<int32_t>(value);
      (*this)(key, number, limits);
      value = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, std::map<std::string, double>>) {
      ReadNumbers(key, value, limits);
    } else if constexpr (requires(FieldReader & reader) { Visit(value, reader); }) {
      FieldReader nested(reader_.Object(key).json(), reader_.PathOf(key), violations_);
      Visit(value, nested);
    } else if constexpr (requires(JsonReader & reader) { reader.Read(key, value); }) {
      reader_.Read(key, value);
      Check(key, value, limits);
    } else {
      const Json& items = reader_.Array(key);
      reader_.CheckCount(key, items.size(), limits);
      for (const Json& item : items) {
        FieldReader nested(item, reader_.PathOf(key) + "[]", violations_);
        Visit(value.emplace_back(), nested);
      }
    }
  }

 private:
  // Non-finite numbers were written as null.
  void ReadNumbers(std::string_view key, std::map<std::string, double>& value, const Limits& limits) {
    for (const auto& [name, number] : reader_.Object(key).json().items()) {
      reader_.CheckLength(key, name, limits);
      if (!number.is_number()) continue;
      value[name] = number.template get<double>();
      reader_.CheckNumber(key, value[name], limits);
    }
    reader_.CheckCount(key, value.size(), limits);
  }

  template <typename T>
  void Check(std::string_view key, const T& value, const Limits& limits) {
    if constexpr (std::is_same_v<T, std::string>) {
      reader_.CheckLength(key, value, limits);
    } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      reader_.CheckNumber(key, static_cast<double>(value), limits);
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      for (const int64_t number : value) reader_.CheckNumber(key, static_cast<double>(number), limits);
      reader_.CheckCount(key, value.size(), limits);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      for (const std::string& text : value) reader_.CheckLength(key, text, limits);
      reader_.CheckCount(key, value.size(), limits);
    }
  }

  JsonReader reader_;
  std::vector<std::string>& violations_;
};

template <typename Message>
[[nodiscard]] Json MessageToJson(Message message) {
  return FieldWriter::ToJson(message);
}

template <typename Message>
[[nodiscard]] Result<Message> MessageFromJson(const Json& json) {
  std::vector<std::string> violations;
  Message message{};
  FieldReader reader(json, "", violations);
  Visit(message, reader);
  if (violations.empty()) return message;
  std::string all;
  for (const std::string& violation : violations) all += (all.empty() ? "" : "; ") + violation;
  return Error{ErrorCode::kInvalidArgument, all};
}

}  // namespace lockstep::protocol

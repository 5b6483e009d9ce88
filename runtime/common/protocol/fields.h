#pragma once
// Reads and writes protocol structs field by field: a struct states its fields once, in
// `template <class V> void Visit(Struct&, V&)`, and both directions follow from it. Pure.

#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/common/base/json.h"

namespace lockstep::protocol {

class FieldWriter {
 public:
  template <typename T>
  void operator()(std::string_view key, T& value) {
    json_[std::string(key)] = ToJson(value);
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
  void operator()(std::string_view key, T& value) {
    if constexpr (std::is_enum_v<T>) {
      int32_t number = static_cast<int32_t>(value);
      reader_.Read(key, number);
      value = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, std::map<std::string, double>>) {
      for (const auto& [name, number] : reader_.Object(key).json().items()) {
        if (number.is_number()) value[name] = number.template get<double>();
      }
    } else if constexpr (requires(FieldReader & reader) { Visit(value, reader); }) {
      FieldReader nested(reader_.Object(key).json(), reader_.PathOf(key), violations_);
      Visit(value, nested);
    } else if constexpr (requires(JsonReader & reader) { reader.Read(key, value); }) {
      reader_.Read(key, value);
    } else {
      for (const Json& item : reader_.Array(key)) {
        FieldReader nested(item, reader_.PathOf(key) + "[]", violations_);
        Visit(value.emplace_back(), nested);
      }
    }
  }

 private:
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

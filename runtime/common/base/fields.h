#pragma once
// One description per struct serves reading and writing it, and whatever else visits its fields. A struct
// supports this with a function
//
//   template <typename A>
//   void Describe(A& fields, Of<A, OptimizerSpec>& spec) {
//     fields.Field("learningRate", spec.learning_rate, {.above = 0, .max = 1000});
//   }
//
// that is found by argument-dependent lookup. A is FieldReader or FieldWriter, or a lister of fields such as
// the one that tests compare with the CRD. Pure.

#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/enum_text.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/limits.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep {

enum class DocumentKind {
  // Between people and programs: an unknown field or word is an error, and empty fields are not written.
  kResource,
  // Between programs, whose versions may differ: unknown fields and words are ignored. All fields are written,
  // and a text that is too long is truncated, because the reader would reject the whole message.
  kMessage,
};

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

// A field that is either an integer or one of a few words. Such a type provides these two functions.
template <typename T>
concept IntOrWord = requires(const T value, T& target, const Json& json) {
  { IntOrWordToJson(value) } -> std::same_as<Json>;
  { IntOrWordFromJson(json, target) } -> std::same_as<std::string>;  // what is wrong, or ""
};

using TextMap = std::map<std::string, std::string>;
using NumberMap = std::map<std::string, double>;

// Absent and null fields leave the target unchanged.
template <DocumentKind kind>
class FieldReader {
 public:
  static constexpr bool kReading = true;

  FieldReader(JsonReader reader, std::vector<std::string>& violations)
      : reader_(std::move(reader)), violations_(violations) {}

  template <typename T>
  void Field(std::string_view key, T& target, const Limits& limits = {}) {
    if (!reader_.Has(key)) return;
    if constexpr (IsOptional<T>::value) {
      Field(key, target.emplace(), limits);
    } else if constexpr (IntOrWord<T>) {
      if (const std::string problem = IntOrWordFromJson(reader_.json().at(std::string(key)), target);
          !problem.empty())
        reader_.Violation(key, problem);
    } else if constexpr (std::is_enum_v<T>) {
      ReadEnum(key, target);
    } else if constexpr (std::is_same_v<T, WallTime>) {
      ReadTime(key, target);
    } else if constexpr (std::is_same_v<T, TextMap>) {
      ReadTextMap(key, target, limits);
    } else if constexpr (std::is_same_v<T, NumberMap>) {
      ReadNumberMap(key, target, limits);
    } else if constexpr (std::is_same_v<T, Json>) {
      target = reader_.Object(key).json();
    } else if constexpr (IsVector<T>::value) {
      ReadVector(key, target, limits);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      if (ReadPlain(key, target)) Check(key, target, limits);
    } else {
      ReadStruct(reader_.Object(key), target);
    }
  }

  template <typename T>
  void Required(std::string_view key, T& target, const Limits& limits = {}) {
    if (!reader_.Has(key)) return reader_.Violation(key, "is required");
    Field(key, target, limits);
  }

  // A section that applies only if `active`. A section that does not apply is a violation, because it would
  // be ignored silently.
  template <typename T>
  void Section(std::string_view key, T& target, bool active, std::string_view condition) {
    if (reader_.Has(key) && !active) reader_.Violation(key, "applies only where " + std::string(condition));
    Field(key, target);
  }

  // An enum that travels as its number, from 0 to that of `last`.
  template <typename E>
  void Number(std::string_view key, E& target, E last) {
    auto number = static_cast<int32_t>(target);
    Field(key, number, {.min = 0, .max = static_cast<double>(last)});
    target = static_cast<E>(number);
  }

  void Finish() {
    if constexpr (kind == DocumentKind::kResource) reader_.RejectUnknownKeys();
  }

 private:
  template <typename T>
  void ReadStruct(JsonReader reader, T& target) {
    FieldReader fields(std::move(reader), violations_);
    Describe(fields, target);
    fields.Finish();
  }

  // False if the value has another type, which is reported already, so its limits are not checked.
  template <typename T>
  bool ReadPlain(std::string_view key, T& target) {
    const std::size_t violations_before = violations_.size();
    reader_.Read(key, target);
    return violations_.size() == violations_before;
  }

  template <typename E>
  void ReadEnum(std::string_view key, E& target) {
    std::string name;
    if (!ReadPlain(key, name)) return;
    if (const std::optional<E> value = EnumFromName<E>(name)) {
      target = *value;
    } else if constexpr (kind == DocumentKind::kResource) {
      reader_.Violation(key, "must be " + EnumChoices<E>() + ", not \"" + Truncate(name, 80) + "\"");
    }
  }

  void ReadTime(std::string_view key, WallTime& target) {
    std::string text;
    if (!ReadPlain(key, text)) return;
    const Result<WallTime> time = ParseTime(text);
    if (!time) return reader_.Violation(key, "must be an RFC 3339 time");
    target = *time;
  }

  void ReadTextMap(std::string_view key, TextMap& target, const Limits& limits) {
    const JsonReader object = reader_.Object(key);
    target.clear();
    for (const auto& [name, value] : object.json().items()) {
      if (!value.is_string()) {
        reader_.Violation(key, "must map text to text, see " + Truncate(name, 80));
        continue;
      }
      target[name] = value.template get<std::string>();
      reader_.CheckLength(std::string(key) + "." + Truncate(name, 80), target[name], limits);
    }
    reader_.CheckCount(key, target.size(), limits);
  }

  // Non-finite numbers were written as null.
  void ReadNumberMap(std::string_view key, NumberMap& target, const Limits& limits) {
    const JsonReader object = reader_.Object(key);
    target.clear();
    for (const auto& [name, number] : object.json().items()) {
      reader_.CheckLength(key, name, limits);
      if (!number.is_number()) continue;
      target[name] = number.template get<double>();
      Check(key, target[name], limits);
    }
    reader_.CheckCount(key, target.size(), limits);
  }

  template <typename T>
  void ReadVector(std::string_view key, std::vector<T>& target, const Limits& limits) {
    if constexpr (std::is_same_v<T, double>) {
      target.clear();
      for (const Json& item : reader_.Array(key)) {
        if (!item.is_number()) return reader_.Violation(key, "must be a list of numbers");
        const std::string where = Indexed(key, target.size());
        Check(where, target.emplace_back(item.get<double>()), limits);
      }
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      if (!ReadPlain(key, target)) return;
      for (std::size_t index = 0; index < target.size(); ++index)
        Check(Indexed(key, index), target[index], limits);
    } else {
      const Json& items = reader_.Array(key);
      target.clear();
      for (std::size_t index = 0; index < items.size(); ++index) {
        ReadItem(items[index], Indexed(key, index), target.emplace_back());
      }
    }
    reader_.CheckCount(key, target.size(), limits);
  }

  template <typename T>
  void ReadItem(const Json& item, const std::string& key, T& target) {
    if constexpr (std::is_enum_v<T>) {
      const Json wrapped = {{key, item}};
      FieldReader(JsonReader(wrapped, reader_.path(), violations_), violations_).Field(key, target);
    } else if constexpr (std::is_same_v<T, Json>) {
      target = JsonReader(item, reader_.PathOf(key), violations_).json();
    } else {
      ReadStruct(JsonReader(item, reader_.PathOf(key), violations_), target);
    }
  }

  template <typename T>
  void Check(const std::string_view key, const T& value, const Limits& limits) {
    if constexpr (std::is_same_v<T, std::string>) {
      reader_.CheckLength(key, value, limits);
    } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      reader_.CheckNumber(key, static_cast<double>(value), limits);
    }
  }

  static std::string Indexed(std::string_view key, std::size_t index) {
    return std::string(key) + "[" + std::to_string(index) + "]";
  }

  JsonReader reader_;
  std::vector<std::string>& violations_;
};

template <DocumentKind kind>
class FieldWriter {
 public:
  static constexpr bool kReading = false;

  // Numbers are rounded to this many digits: a status with fewer digits is written less often and is easier
  // to read.
  explicit FieldWriter(int significant_digits = 17) : significant_digits_(significant_digits) {}

  template <typename T>
  void Field(std::string_view key, const T& value, const Limits& limits = {}) {
    Json json = ToJson(value);
    if (kOmitsEmpty && json.is_null()) return;
    if constexpr (kind == DocumentKind::kMessage && std::is_same_v<T, std::string>) {
      if (limits.max_length && value.size() > *limits.max_length) json = Truncate(value, *limits.max_length);
    }
    json_[std::string(key)] = std::move(json);
  }
  template <typename T>
  void Required(std::string_view key, const T& value, const Limits& = {}) {
    Json json = ToJson(value);
    json_[std::string(key)] = json.is_null() ? Json("") : std::move(json);  // the reader requires the key
  }
  template <typename T>
  void Section(std::string_view key, const T& value, bool active, std::string_view) {
    if (active) Field(key, value);
  }
  template <typename E>
  void Number(std::string_view key, E value, E) {
    json_[std::string(key)] = static_cast<int32_t>(value);
  }

  [[nodiscard]] Json Take() { return std::move(json_); }

 private:
  static constexpr bool kOmitsEmpty = kind == DocumentKind::kResource;

  // null: leave the field out of a resource.
  template <typename T>
  Json ToJson(const T& value) {
    if constexpr (IsOptional<T>::value) {
      return value ? ToJson(*value) : Json();
    } else if constexpr (IntOrWord<T>) {
      return IntOrWordToJson(value);
    } else if constexpr (std::is_enum_v<T>) {
      return std::string(NameOf(value));
    } else if constexpr (std::is_same_v<T, WallTime>) {
      return FormatTime(value);
    } else if constexpr (std::is_same_v<T, Json>) {
      return value;
    } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, TextMap> ||
                         std::is_same_v<T, NumberMap>) {
      return kOmitsEmpty && value.empty() ? Json() : Json(value);
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      return value;  // even empty: "no hidden layers" differs from the default
    } else if constexpr (IsVector<T>::value) {
      Json list = kOmitsEmpty ? Json() : Json::array();
      for (const auto& entry : value) list.push_back(ToJson(entry));
      return list;
    } else if constexpr (std::is_floating_point_v<T>) {
      return Rounded(value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return value;
    } else {
      FieldWriter fields(significant_digits_);
      Describe(fields, value);
      return fields.Take();
    }
  }

  // JSON has no NaN.
  [[nodiscard]] Json Rounded(double value) const {
    if (!std::isfinite(value)) return {};
    if (significant_digits_ >= 17) return value;
    return std::strtod(FormatNumber(value, significant_digits_).c_str(), nullptr);
  }

  int significant_digits_;
  Json json_ = Json::object();
};

// Reads an object of type T at `path`.
template <typename T, DocumentKind kind = DocumentKind::kResource>
[[nodiscard]] T ReadFields(const Json& json, const std::string& path, std::vector<std::string>& violations) {
  T value{};
  FieldReader<kind> fields(JsonReader(json, path, violations), violations);
  Describe(fields, value);
  fields.Finish();
  return value;
}

template <typename T, DocumentKind kind = DocumentKind::kResource>
[[nodiscard]] Json WriteFields(const T& value, int significant_digits = 17) {
  FieldWriter<kind> fields(significant_digits);
  Describe(fields, value);
  return fields.Take();
}

// A message with a field outside of its limits is rejected as a whole.
template <typename Message>
[[nodiscard]] Result<Message> MessageFromJson(const Json& json) {
  std::vector<std::string> violations;
  auto message = ReadFields<Message, DocumentKind::kMessage>(json, "", violations);
  if (violations.empty()) return message;
  return Error{ErrorCode::kInvalidArgument, Join(violations, "; ")};
}

template <typename Message>
[[nodiscard]] Json MessageToJson(const Message& message) {
  return WriteFields<Message, DocumentKind::kMessage>(message);
}

}  // namespace lockstep

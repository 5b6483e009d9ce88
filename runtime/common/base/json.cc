#include "runtime/common/base/json.h"

#include <algorithm>
#include <limits>

#include "runtime/common/base/strings.h"
#include "runtime/common/base/suggestion.h"

namespace lockstep {
namespace {

const Json& EmptyObject() {
  static const Json empty = Json::object();
  return empty;
}

const Json& EmptyArray() {
  static const Json empty = Json::array();
  return empty;
}

// An integer above the largest int64_t would become negative.
bool FitsInto64Bits(const Json& value) {
  return !value.is_number_unsigned() ||
         value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

bool IsTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\') {
      ++at;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      if (++depth > kMaxJsonNesting) return true;
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> ParseJson(std::string_view text) {
  if (IsTooDeep(text)) {
    return Error{ErrorCode::kInvalidArgument,
                 "not JSON: nested deeper than " + std::to_string(kMaxJsonNesting) + " levels"};
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& exception) {
    return Error{ErrorCode::kInvalidArgument, std::string("not JSON: ") + exception.what()};
  }
}

std::string DumpJson(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

const Json* FindJson(const Json& value, std::initializer_list<std::string_view> keys) {
  const Json* at = &value;
  for (const std::string_view key : keys) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end() || found->is_null()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string StringAt(const Json& value, std::initializer_list<std::string_view> keys,
                     std::string_view fallback) {
  const Json* found = FindJson(value, keys);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string(fallback);
}

int64_t IntAt(const Json& value, std::initializer_list<std::string_view> keys, int64_t fallback) {
  const Json* found = FindJson(value, keys);
  return found != nullptr && found->is_number_integer() ? found->get<int64_t>() : fallback;
}

bool BoolAt(const Json& value, std::initializer_list<std::string_view> keys, bool fallback) {
  const Json* found = FindJson(value, keys);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : fallback;
}

JsonReader::JsonReader(const Json& object, std::string path, std::vector<std::string>& violations)
    : object_(object.is_object() ? object : EmptyObject()), path_(std::move(path)), violations_(violations) {
  if (!object.is_object())
    violations_.push_back((path_.empty() ? "document" : path_) + ": must be an object");
}

std::string JsonReader::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void JsonReader::Violation(std::string_view key, std::string_view problem) {
  violations_.push_back(PathOf(key) + ": " + std::string(problem));
}

void JsonReader::CheckNumber(std::string_view key, double number, const Limits& limits) {
  const std::string but = ", not " + FormatNumber(number, 10);
  if (limits.min && number < *limits.min)
    Violation(key, "must be at least " + FormatNumber(*limits.min, 10) + but);
  if (limits.above && number <= *limits.above)
    Violation(key, "must be above " + FormatNumber(*limits.above, 10) + but);
  if (limits.max && number > *limits.max)
    Violation(key, "must be at most " + FormatNumber(*limits.max, 10) + but);
}

void JsonReader::CheckLength(std::string_view key, std::string_view text, const Limits& limits) {
  if (limits.max_length && text.size() > *limits.max_length)
    Violation(key, "must have at most " + std::to_string(*limits.max_length) + " characters");
}

void JsonReader::CheckCount(std::string_view key, std::size_t count, const Limits& limits) {
  if (limits.min_items && count < *limits.min_items)
    Violation(key, "must have at least " + std::to_string(*limits.min_items) + " entries");
  if (limits.max_items && count > *limits.max_items)
    Violation(key, "must have at most " + std::to_string(*limits.max_items) + " entries");
}

bool JsonReader::Has(std::string_view key) const {
  known_keys_.emplace_back(key);
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

const Json* JsonReader::Find(std::string_view key, bool (Json::*is_type)() const noexcept,
                             std::string_view type_name) {
  if (!Has(key)) return nullptr;
  const Json& value = *object_.find(key);
  if ((value.*is_type)()) return &value;
  Violation(key, "must be " + std::string(type_name) + ", not " + Truncate(DumpJson(value), 80));
  return nullptr;
}

void JsonReader::Read(std::string_view key, std::string& target) {
  if (const Json* value = Find(key, &Json::is_string, "a string")) target = value->get<std::string>();
}

void JsonReader::Read(std::string_view key, bool& target) {
  if (const Json* value = Find(key, &Json::is_boolean, "true or false")) target = value->get<bool>();
}

void JsonReader::Read(std::string_view key, int64_t& target) {
  const Json* value = Find(key, &Json::is_number_integer, "an integer");
  if (value == nullptr) return;
  if (!FitsInto64Bits(*value)) return Violation(key, "must fit into 64 bits");
  target = value->get<int64_t>();
}

void JsonReader::Read(std::string_view key, int32_t& target) {
  int64_t wide = target;
  Read(key, wide);
  if (wide < std::numeric_limits<int32_t>::min() || wide > std::numeric_limits<int32_t>::max()) {
    Violation(key, "must fit into 32 bits");
    return;
  }
  target = static_cast<int32_t>(wide);
}

void JsonReader::Read(std::string_view key, double& target) {
  if (const Json* value = Find(key, &Json::is_number, "a number")) target = value->get<double>();
}

void JsonReader::Read(std::string_view key, std::vector<int64_t>& target) {
  const Json* values = Find(key, &Json::is_array, "a list of integers");
  if (values == nullptr) return;
  target.clear();
  for (const Json& value : *values) {
    if (!value.is_number_integer()) return Violation(key, "must be a list of integers");
    if (!FitsInto64Bits(value)) return Violation(key, "must fit into 64 bits");
    target.push_back(value.get<int64_t>());
  }
}

void JsonReader::Read(std::string_view key, std::vector<std::string>& target) {
  const Json* values = Find(key, &Json::is_array, "a list of strings");
  if (values == nullptr) return;
  target.clear();
  for (const Json& value : *values) {
    if (!value.is_string()) return Violation(key, "must be a list of strings");
    target.push_back(value.get<std::string>());
  }
}

JsonReader JsonReader::Object(std::string_view key) {
  const Json* value = Find(key, &Json::is_object, "an object");
  return {value != nullptr ? *value : EmptyObject(), PathOf(key), violations_};
}

const Json& JsonReader::Array(std::string_view key) {
  const Json* value = Find(key, &Json::is_array, "a list");
  return value != nullptr ? *value : EmptyArray();
}

void JsonReader::RejectUnknownKeys() {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_keys_.begin(), known_keys_.end(), key) == known_keys_.end()) {
      Violation(key, "unknown field" + DidYouMean(key, known_keys_));
    }
  }
}

}  // namespace lockstep

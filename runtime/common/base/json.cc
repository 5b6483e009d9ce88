#include "runtime/common/base/json.h"

#include <algorithm>
#include <limits>

#include "runtime/common/base/strings.h"

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

}  // namespace

Result<Json> ParseJson(std::string_view text) {
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
  if (const Json* value = Find(key, &Json::is_number_integer, "an integer")) target = value->get<int64_t>();
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
      Violation(key, "unknown field");
    }
  }
}

}  // namespace lockstep

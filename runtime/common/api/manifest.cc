#include "runtime/common/api/manifest.h"

#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <regex>
#include <string>
#include <utility>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/strings.h"

namespace lockstep::api {
namespace {

constexpr std::size_t kMaxTextBytes = 4UL << 20;
constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxNodes = 20000;  // a small text may expand by aliases

std::string Place(const YAML::Node& node) { return "line " + std::to_string(node.Mark().line + 1) + ": "; }

Error Fault(const YAML::Node& node, const std::string& problem) {
  return {ErrorCode::kInvalidArgument, Place(node) + problem};
}

struct ScalarPatterns {
  std::regex leading_zero{"[-+]?0[0-9]+"};
  std::regex decimal{"[-+]?[0-9]+"};
  std::regex octal{"0o[0-7]+"};
  std::regex hexadecimal{"0x[0-9a-fA-F]+"};
  std::regex fraction{"[-+]?(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?"};
  std::regex not_finite{"[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN)"};
};

Result<Json> IntegerFromText(const YAML::Node& node, const std::string& text, int base) {
  errno = 0;
  const long long value = std::strtoll(base == 10 ? text.c_str() : text.c_str() + 2, nullptr, base);
  if (errno == ERANGE) return Fault(node, Truncate(text, 40) + " does not fit into 64 bits");
  return Json(int64_t{value});
}

// A number if the text is one, else the text.
Result<Json> NumberFromText(const YAML::Node& node, const std::string& text) {
  static const ScalarPatterns patterns;
  static constexpr std::string_view kFirst = "+-.0123456789";
  constexpr std::size_t kLongest = 64;
  if (text.size() > kLongest || kFirst.find(text.front()) == std::string_view::npos) return Json(text);
  const auto is = [&](const std::regex& pattern) { return std::regex_match(text, pattern); };
  if (is(patterns.leading_zero)) {
    return Fault(
        node, text + " has a leading zero, which YAML 1.1 reads as octal; write it in decimal or in quotes");
  }
  if (is(patterns.decimal)) return IntegerFromText(node, text, 10);
  if (is(patterns.octal)) return IntegerFromText(node, text, 8);
  if (is(patterns.hexadecimal)) return IntegerFromText(node, text, 16);
  if (is(patterns.fraction)) return Json(std::strtod(text.c_str(), nullptr));
  if (is(patterns.not_finite)) return Fault(node, text + " is not a number of JSON");
  return Json(text);
}

// The core schema of YAML 1.2. Texts that YAML 1.1, which kubectl reads, interprets differently are rejected
// or stay strings, so that a manifest has only one meaning.
Result<Json> ScalarFromYaml(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() != "?" && !node.Tag().empty()) {  // quoted, or a block
    if (node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str") return Json(text);
    return Fault(node, "tags such as " + Truncate(node.Tag(), 40) + " are not supported");
  }
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return Json();
  if (text == "true" || text == "True" || text == "TRUE") return Json(true);
  if (text == "false" || text == "False" || text == "FALSE") return Json(false);
  return NumberFromText(node, text);
}

class Converter {
 public:
  Result<Json> Convert(const YAML::Node& node, int depth = 0) {
    if (depth > kMaxDepth) return Fault(node, "nested too deeply");
    if (++nodes_ > kMaxNodes) return Fault(node, "too many values (aliases expanded)");
    switch (node.Type()) {
      case YAML::NodeType::Scalar: return ScalarFromYaml(node);
      case YAML::NodeType::Sequence: return ConvertSequence(node, depth);
      case YAML::NodeType::Map: return ConvertMap(node, depth);
      default: return Json();
    }
  }

 private:
  Result<Json> ConvertSequence(const YAML::Node& node, int depth) {
    Json list = Json::array();
    for (const auto& entry : node) {
      LOCKSTEP_TRY(Json value, Convert(entry, depth + 1));
      list.push_back(std::move(value));
    }
    return list;
  }

  Result<Json> ConvertMap(const YAML::Node& node, int depth) {
    Json object = Json::object();
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return Fault(entry.first, "a key must be text");
      const std::string key = entry.first.Scalar();
      if (key == "<<") return Fault(entry.first, "merge keys (<<) are not supported");
      if (object.contains(key)) return Fault(entry.first, "\"" + Truncate(key, 80) + "\" is given twice");
      LOCKSTEP_TRY(Json value, Convert(entry.second, depth + 1));
      object[key] = std::move(value);
    }
    return object;
  }

  std::size_t nodes_ = 0;
};

}  // namespace

Result<std::vector<Json>> ParseManifest(std::string_view text) {
  if (text.size() > kMaxTextBytes) return Error{ErrorCode::kInvalidArgument, "manifest is larger than 4 MiB"};
  std::vector<Json> documents;
  try {
    Converter converter;
    for (const YAML::Node& node : YAML::LoadAll(std::string(text))) {
      LOCKSTEP_TRY(Json document, converter.Convert(node));
      if (!document.is_null()) documents.push_back(std::move(document));
    }
  } catch (const YAML::Exception& exception) {
    return Error{ErrorCode::kInvalidArgument, std::string("not YAML: ") + exception.what()};
  }
  return documents;
}

Result<Json> FindJobInManifest(std::string_view text) {
  LOCKSTEP_TRY(std::vector<Json> documents, ParseManifest(text));
  const Json* job = nullptr;
  for (const Json& document : documents) {
    if (StringAt(document, {"kind"}) != kKind) continue;
    if (job != nullptr)
      return Error{ErrorCode::kInvalidArgument, "the manifest holds more than one " + std::string(kKind)};
    job = &document;
  }
  if (job == nullptr)
    return Error{ErrorCode::kInvalidArgument, "the manifest holds no " + std::string(kKind)};
  return *job;
}

}  // namespace lockstep::api

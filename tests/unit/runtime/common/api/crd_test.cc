// Compares the CRD with the C++ values: fields, types, words, defaults, limits, and the rules that both have. Also checks that every field
// of ours has a description and that the CRD is small enough for a plain `kubectl apply`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "runtime/common/api/exclusions.h"
#include "runtime/common/api/manifest.h"
#include "runtime/common/api/training_job_fields.h"
#include "runtime/common/base/file.h"

namespace lockstep::api {
namespace {

constexpr const char* kCrdPath = LOCKSTEP_SOURCE_DIR "/crds/distributedtrainingjobs.yaml";

// Schemas of Kubernetes itself.
const std::set<std::string> kForeign = {"spec.worker.template", "spec.elasticPolicy.metrics[]"};

Json Crd() {
  const Result<std::string> text = ReadFile(kCrdPath);
  LOCKSTEP_CHECK(text.ok());
  const Result<std::vector<Json>> documents = ParseManifest(*text);
  LOCKSTEP_CHECK(documents.ok(), documents.ok() ? "" : documents.error().ToString());
  return documents->at(0);
}

Json SchemaOf(const std::string& section) {
  return Crd()
      .at("spec")
      .at("versions")
      .at(0)
      .at("schema")
      .at("openAPIV3Schema")
      .at("properties")
      .at(section);
}

const Json& ObjectAt(const Json& schema, const char* key) {
  static const Json empty = Json::object();
  return schema.contains(key) ? schema.at(key) : empty;
}

// Collects what a struct's Describe states, one line per fact: "spec.suspend: type boolean".
class SchemaWriter {
 public:
  static constexpr bool kReading = false;

  SchemaWriter(std::string path, std::set<std::string>& facts) : path_(std::move(path)), facts_(facts) {}

  template <typename T>
  void Field(std::string_view key, const T& value, const Limits& limits = {}) {
    Add<T>(path_ + "." + std::string(key), limits);
    AddDefault(path_ + "." + std::string(key), value);
  }
  template <typename T>
  void Required(std::string_view key, const T&, const Limits& limits = {}) {
    const std::string path = path_ + "." + std::string(key);
    Add<T>(path, limits);
    facts_.insert(path + ": required");
  }
  template <typename T>
  void Section(std::string_view key, const T& value, bool, std::string_view where) {
    Field(key, value);
    Fact(path_ + "." + std::string(key), "applies only where", where);
  }

 private:
  void Fact(const std::string& path, std::string_view name, const Json& value) {
    facts_.insert(path + ": " + std::string(name) + " " + value.dump());
  }

  template <typename T>
  void Add(const std::string& path, const Limits& limits) {
    if constexpr (IsOptional<T>::value) {
      Add<typename T::value_type>(path, limits);
    } else if constexpr (IntOrWord<T>) {
      Fact(path, "type", "integer or string");
    } else if constexpr (std::is_enum_v<T>) {
      Fact(path, "type", "string");
      Fact(path, "enum", Json(WordsOf(T{})));
    } else if constexpr (std::is_same_v<T, WallTime>) {
      Fact(path, "type", "string");
      Fact(path, "format", "date-time");
    } else if constexpr (std::is_same_v<T, TextMap>) {
      Fact(path, "type", "object");
      Fact(path, "items at most", *limits.max_items);
      Fact(path + "{}", "type", "string");
      Fact(path + "{}", "length at most", *limits.max_length);
    } else if constexpr (std::is_same_v<T, Json>) {
      Fact(path, "type", "object");
    } else if constexpr (IsVector<T>::value) {
      AddVector<typename T::value_type>(path, limits);
    } else if constexpr (std::is_same_v<T, bool>) {
      Fact(path, "type", "boolean");
    } else if constexpr (std::is_same_v<T, std::string>) {
      Fact(path, "type", "string");
      if (limits.max_length) Fact(path, "length at most", *limits.max_length);
    } else if constexpr (std::is_arithmetic_v<T>) {
      AddNumber<T>(path, limits);
    } else {
      Fact(path, "type", "object");
      SchemaWriter fields(path, facts_);
      Describe(fields, std::as_const(DefaultOf<T>()));
    }
  }

  template <typename T>
  static const T& DefaultOf() {
    static const T value{};
    return value;
  }

  template <typename T>
  void AddNumber(const std::string& path, const Limits& limits) {
    Fact(path, "type", std::is_integral_v<T> ? "integer" : "number");
    if constexpr (std::is_integral_v<T>) Fact(path, "format", sizeof(T) == 4 ? "int32" : "int64");
    if (limits.min) Fact(path, "at least", *limits.min);
    if (limits.above) Fact(path, "above", *limits.above);
    if (limits.max) Fact(path, "at most", *limits.max);
  }

  template <typename T>
  void AddVector(const std::string& path, const Limits& limits) {
    Fact(path, "type", "array");
    if (limits.min_items) Fact(path, "items at least", *limits.min_items);
    if (limits.max_items) Fact(path, "items at most", *limits.max_items);
    Add<T>(path + "[]", limits);
  }

  // The value of an omitted field, if it has a default.
  template <typename T>
  void AddDefault(const std::string& path, const T& value) {
    if (path.rfind("status.", 0) == 0) return;  // the API server sets no defaults there
    if constexpr (IntOrWord<T>) {
      Fact(path, "default", IntOrWordToJson(value));
    } else if constexpr (std::is_enum_v<T>) {
      Fact(path, "default", std::string(NameOf(value)));
    } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<int64_t>>) {
      if (!value.empty()) Fact(path, "default", value);
    } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      Fact(path, "default", static_cast<double>(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      Fact(path, "default", value);
    }
  }

  std::string path_;
  std::set<std::string>& facts_;
};

// The same facts, read from the CRD.
class SchemaReader {
 public:
  explicit SchemaReader(std::set<std::string>& facts) : facts_(facts) {}

  void Walk(const Json& schema, const std::string& path) {
    if (schema.contains("x-kubernetes-int-or-string")) {
      Fact(path, "type", "integer or string");
    } else {
      Fact(path, "type", schema.at("type"));
    }
    const bool is_above = schema.value("exclusiveMinimum", false);
    Copy(schema, "format", path, "format");
    Copy(schema, "enum", path, "enum");
    CopyNumber(schema, "minimum", path, is_above ? "above" : "at least");
    CopyNumber(schema, "maximum", path, "at most");
    Copy(schema, "minItems", path, "items at least");
    Copy(schema, "maxItems", path, "items at most");
    Copy(schema, "maxProperties", path, "items at most");
    if (!schema.contains("x-kubernetes-int-or-string")) Copy(schema, "maxLength", path, "length at most");
    if (schema.contains("default") && schema.at("default").is_number()) {
      CopyNumber(schema, "default", path, "default");
    } else {
      Copy(schema, "default", path, "default");
    }
    if (kForeign.contains(path)) return;
    for (const Json& rule : ObjectAt(schema, "x-kubernetes-validations")) WalkRule(rule, schema, path);
    for (const auto& [key, value] : ObjectAt(schema, "properties").items()) Walk(value, path + "." + key);
    for (const Json& key : ObjectAt(schema, "required")) {
      facts_.insert(path + "." + key.get<std::string>() + ": required");
    }
    if (schema.contains("items")) Walk(schema.at("items"), path + "[]");
    if (schema.contains("additionalProperties")) Walk(schema.at("additionalProperties"), path + "{}");
  }

 private:
  // Where one other field decides whether a section may be there.
  void WalkRule(const Json& rule, const Json& schema, const std::string& path) {
    const std::string field = rule.value("fieldPath", ".").substr(1);
    if (!ObjectAt(ObjectAt(schema, "properties"), field.c_str()).contains("properties")) return;
    if (rule.at("rule").get<std::string>().starts_with("!has(self." + field + ") || (")) return;
    const std::regex only(field + " applies only where (.*)|" + field +
                          ", .*, is required where (.*) and must be absent elsewhere");
    std::smatch found;
    const std::string message = rule.value("message", "");
    if (std::regex_match(message, found, only))
      Fact(path + "." + field, "applies only where", found.str(1) + found.str(2));
  }
  void Fact(const std::string& path, std::string_view name, const Json& value) {
    facts_.insert(path + ": " + std::string(name) + " " + value.dump());
  }
  void Copy(const Json& schema, const char* key, const std::string& path, std::string_view name) {
    if (schema.contains(key)) Fact(path, name, schema.at(key));
  }
  void CopyNumber(const Json& schema, const char* key, const std::string& path, std::string_view name) {
    if (schema.contains(key)) Fact(path, name, schema.at(key).get<double>());
  }

  std::set<std::string>& facts_;
};

std::vector<std::string> Without(const std::set<std::string>& facts, const std::set<std::string>& others) {
  std::vector<std::string> only;
  std::set_difference(facts.begin(), facts.end(), others.begin(), others.end(), std::back_inserter(only));
  return only;
}

template <typename T>
void ExpectSameSchema(const std::string& section) {
  std::set<std::string> in_crd;
  SchemaReader(in_crd).Walk(SchemaOf(section), section);
  std::set<std::string> in_code = {section + ": type \"object\""};
  SchemaWriter fields(section, in_code);
  const T defaults{};
  Describe(fields, defaults);
  EXPECT_GT(in_code.size(), 50u);
  EXPECT_THAT(Without(in_crd, in_code), testing::IsEmpty()) << "only in crds/schema.yaml";
  EXPECT_THAT(Without(in_code, in_crd), testing::IsEmpty()) << "only in runtime/common/api";
}

TEST(Crd, SpecIsWhatTheCodeReads) { ExpectSameSchema<TrainingJobSpec>("spec"); }

TEST(Crd, StatusIsWhatTheCodeWrites) { ExpectSameSchema<TrainingJobStatus>("status"); }

TEST(Crd, HasTheRulesOfWhatCannotBeCombined) {
  const Json rules = SchemaOf("spec").at("properties").at("training").at("x-kubernetes-validations");
  for (const ExclusionRule& expected : ExclusionRules()) {
    const Json rule = {
        {"rule", expected.rule}, {"message", expected.message}, {"fieldPath", expected.field_path}};
    EXPECT_TRUE(std::find(rules.begin(), rules.end(), rule) != rules.end())
        << "for crds/schema.yaml: " << rule;
  }
  const std::regex combination(".* must .* where (strategy|determinism|balance|cudaGraph|model.name) is .*");
  const auto in_crd = std::count_if(rules.begin(), rules.end(), [&](const Json& rule) {
    return std::regex_match(rule.value("message", ""), combination);
  });
  EXPECT_EQ(static_cast<std::size_t>(in_crd), ExclusionRules().size()) << "only in crds/schema.yaml";
}

void ExpectDescriptions(const Json& schema, const std::string& path) {
  for (const auto& [key, value] : ObjectAt(schema, "properties").items()) {
    const std::string at = path + "." + key;
    const std::string text = value.value("description", "");
    EXPECT_GT(text.size(), 10u) << at << " has no description";
    EXPECT_TRUE(text.empty() || text.back() == '.') << at << ": the description is no sentence";
    if (!kForeign.contains(at)) ExpectDescriptions(value, at);
  }
  if (schema.contains("items") && !kForeign.contains(path + "[]"))
    ExpectDescriptions(schema.at("items"), path + "[]");
}

TEST(Crd, EveryFieldOfOursHasASentence) {
  ExpectDescriptions(SchemaOf("spec"), "spec");
  ExpectDescriptions(SchemaOf("status"), "status");
}

// Their values name models, formats, algorithms and metrics, written as usual in the field (crds/README.md).
const std::set<std::string> kNamesOfTraining = {
    "spec.training.model.name",     "spec.training.model.torchscript.loss", "spec.training.data.format",
    "spec.training.optimizer.name", "spec.training.schedule.name",          "spec.training.precision",
    "spec.training.strategy",       "spec.training.sync.compression",       "spec.training.earlyStop.metric"};

void ExpectCamelCase(const Json& schema, const std::string& path) {
  if (kForeign.contains(path) || kNamesOfTraining.contains(path)) return;
  for (const Json& word : ObjectAt(schema, "enum"))
    EXPECT_TRUE(word.get<std::string>().front() >= 'A' && word.get<std::string>().front() <= 'Z')
        << path << ": " << word;
  for (const auto& [key, value] : ObjectAt(schema, "properties").items())
    ExpectCamelCase(value, path + "." + key);
  if (schema.contains("items")) ExpectCamelCase(schema.at("items"), path + "[]");
}

TEST(Crd, WordsAreCamelCase) {
  ExpectCamelCase(SchemaOf("spec"), "spec");
  ExpectCamelCase(SchemaOf("status"), "status");
}

TEST(Crd, IsSmallEnoughForAPlainApply) { EXPECT_LT(ReadFile(kCrdPath)->size(), 262144u); }

TEST(Crd, NamesWhatTheCodeNames) {
  const Json crd = Crd();
  EXPECT_EQ(crd.at("spec").at("group"), std::string(kGroup));
  EXPECT_EQ(crd.at("spec").at("names").at("kind"), std::string(kKind));
  EXPECT_EQ(crd.at("spec").at("names").at("plural"), std::string(kPlural));
  EXPECT_EQ(crd.at("metadata").at("name"), std::string(kPlural) + "." + std::string(kGroup));
  EXPECT_EQ(crd.at("spec").at("versions").at(0).at("name"), std::string(kVersion));
}

}  // namespace
}  // namespace lockstep::api

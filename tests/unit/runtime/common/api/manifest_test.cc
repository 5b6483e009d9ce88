#include "runtime/common/api/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/common/api/training_job_json.h"
#include "runtime/common/api/validate.h"
#include "runtime/common/base/file.h"

namespace lockstep::api {
namespace {

using testing::HasSubstr;

TEST(ParseManifest, GivesScalarsTheTypesOfYaml12) {
  const Result<std::vector<Json>> documents = ParseManifest(R"(
int: 42
hex: 0x1F
negative: -3
float: 1e-3
point: .5
yes: yes
true: true
empty:
tilde: ~
quoted: "42"
single: 'true'
block: |
  12
list: [1, two, 3.0]
map: {a: 1}
)");
  ASSERT_TRUE(documents.ok()) << documents.error().ToString();
  ASSERT_EQ(documents->size(), 1u);
  EXPECT_EQ((*documents)[0],
            *ParseJson(R"({"int": 42, "hex": 31, "negative": -3, "float": 0.001, "point": 0.5,
      "yes": "yes", "true": true, "empty": null, "tilde": null, "quoted": "42", "single": "true", "block": "12\n",
      "list": [1, "two", 3.0], "map": {"a": 1}})"));
}

TEST(ParseManifest, ReadsJsonAndSeveralDocuments) {
  EXPECT_EQ(ParseManifest("{\"a\": [1, null]}\n---\n---\nb: 2\n")->size(), 2u);
}

struct Refusal {
  const char* text;
  const char* message;
};

TEST(ParseManifest, RejectsAmbiguousYaml) {
  for (const Refusal& refusal : {
           Refusal{"a: 1\na: 2", "line 2: \"a\" is given twice"},
           Refusal{"mode: 0644", "line 1: 0644 has a leading zero"},
           Refusal{"a: &x {b: 1}\nc: {<<: *x}", "merge keys"},
           Refusal{"a: !!binary aGk=", "tags such as"},
           Refusal{"a: .inf", "not a number of JSON"},
           Refusal{"a: 99999999999999999999", "64 bits"},
           Refusal{"[1]: 2", "a key must be text"},
           Refusal{"a: [1", "not YAML"},
           Refusal{"a:\n\t- b", "not YAML"},
       }) {
    const auto documents = ParseManifest(refusal.text);
    ASSERT_FALSE(documents.ok()) << refusal.text;
    EXPECT_THAT(documents.error().message, HasSubstr(refusal.message)) << refusal.text;
    EXPECT_EQ(documents.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(ParseManifest, BoundsHostileInput) {
  EXPECT_FALSE(ParseManifest(std::string(5 << 20, ' ')).ok());
  EXPECT_FALSE(ParseManifest(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_FALSE(ParseManifest(std::string(100000, '[')).ok());
  std::string laughs = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 9; ++j) laughs += "," + before;
    laughs += "]\n";
  }
  EXPECT_THAT(ParseManifest(laughs).error().message, HasSubstr("too many values"));
}

TEST(FindJobInManifest, FindsTheOneAmongOthers) {
  const char* job = "apiVersion: lockstep.dev/v1alpha1\nkind: DistributedTrainingJob\nmetadata: {name: a}\n";
  EXPECT_EQ(FindJobInManifest(std::string("kind: Secret\n---\n") + job)->at("metadata").at("name"), "a");
  EXPECT_THAT(FindJobInManifest("kind: Secret").error().message,
              HasSubstr("holds no DistributedTrainingJob"));
  EXPECT_THAT(FindJobInManifest(std::string(job) + "---\n" + job).error().message,
              HasSubstr("more than one"));
}

TEST(Examples, ParseAndValidate) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/crds/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const Result<std::string> text = ReadFile(entry.path().string());
    ASSERT_TRUE(text.ok());
    const Result<Json> json = FindJobInManifest(*text);
    ASSERT_TRUE(json.ok()) << entry.path() << " " << json.error().ToString();
    std::vector<std::string> violations;
    const TrainingJob job = TrainingJobFromJson(*json, violations);
    EXPECT_THAT(violations, testing::IsEmpty()) << entry.path();
    EXPECT_THAT(Validate(job), testing::IsEmpty()) << entry.path();
  }
  EXPECT_GE(count, 3);
}

}  // namespace
}  // namespace lockstep::api

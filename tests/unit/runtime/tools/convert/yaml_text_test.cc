#include "runtime/tools/convert/yaml_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/api/manifest.h"

namespace lockstep::convert {
namespace {

Json ParseYaml(const std::string& text) {
  const auto documents = api::ParseManifest(text);
  EXPECT_TRUE(documents.ok() && documents->size() == 1) << text;
  return documents.ok() && !documents->empty() ? documents->front() : Json();
}

// Texts that would have another meaning without quotes, in YAML 1.1 or 1.2.
TEST(WriteYaml, KeepsEveryText) {
  const std::vector<std::string> texts = {"",
                                          " ",
                                          "~",
                                          "null",
                                          "true",
                                          "No",
                                          "on",
                                          "y",
                                          "0644",
                                          "0x1F",
                                          "0o17",
                                          "1e3",
                                          "-1",
                                          "+.5",
                                          ".inf",
                                          "-.INF",
                                          "1:20",
                                          "2024-01-02",
                                          "-",
                                          "--",
                                          "---",
                                          "--lr=1",
                                          "- a",
                                          "a: b",
                                          "a:",
                                          ":a",
                                          "a #b",
                                          "#a",
                                          "[a",
                                          "{a}",
                                          "a, b",
                                          "*a",
                                          "&a",
                                          "!a",
                                          "%a",
                                          "@a",
                                          "`a",
                                          "|",
                                          ">",
                                          "'a'",
                                          "\"a\"",
                                          "a\\b",
                                          " a",
                                          "a ",
                                          "a\tb",
                                          "\ta",
                                          "a\n",
                                          "a\nb",
                                          "a\n\n",
                                          "\na",
                                          " a\nb",
                                          "a\n \nb",
                                          "a\n  b\n",
                                          "a\r\n",
                                          "\x01\x7f",
                                          "päth",
                                          "$(RANK)",
                                          "${A}",
                                          "=",
                                          "=a",
                                          "<<",
                                          "?",
                                          "? a",
                                          "1_000",
                                          "2500m",
                                          "1Gi",
                                          "registry:5000/a:1",
                                          "...",
                                          "a\n---\nb\n",
                                          "a\n# b\n"};
  for (const std::string& text : texts) {
    const Json value = {{"key", text}, {"list", {text, "a"}}, {"objects", {{{"name", text}}}}};
    EXPECT_EQ(ParseYaml(WriteYaml(value)), value) << WriteYaml(value);
  }
}

TEST(WriteYaml, KeepsEveryShape) {
  const Json value =
      Json::parse(R"({"a": [], "b": {}, "c": [[1, 2], [], [[3], {"d": "e\nf\n"}], "g\nh"], "i": [{}, null],
    "j": [{"k": [{"l": {"m": false}}]}], "n": -1.5, "o": 1e-8, "true": "true", "1": {"x: y": 1}})");
  EXPECT_EQ(ParseYaml(WriteYaml(value)), value) << WriteYaml(value);
  Json numbers = Json::array();
  for (int number = 0; number < 100; ++number) numbers.push_back(number);
  EXPECT_EQ(ParseYaml(WriteYaml({{"list", {{{"values", numbers}}}}}))["list"][0]["values"], numbers);
}

TEST(WriteYaml, ReadsLikeOurExamples) {
  const Json value = {
      {"spec",
       {{"worker", {{"template", {{"spec", {{"volumes", {{{"name", "data"}}}}}}}}, {"replicas", 2}}},
        {"args", {"--epochs", "10"}},
        {"script", "set -e\npython3 train.py\n"}}},
      {"kind", "Job"}};
  EXPECT_EQ(WriteYaml(value, {{"spec.worker.replicas", "How many.\nOr more."}}), R"(kind: Job
spec:
  worker:
    # How many.
    # Or more.
    replicas: 2
    template:
      spec:
        volumes:
        - name: data
  args: [--epochs, "10"]
  script: |
    set -e
    python3 train.py
)");
}

}  // namespace
}  // namespace lockstep::convert

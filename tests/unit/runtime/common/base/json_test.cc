#include "runtime/common/base/json.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Json, ParseErrorIsAValue) { EXPECT_EQ(ParseJson("{").error().code, ErrorCode::kInvalidArgument); }

TEST(Json, NumbersThatAreNoneAreNoJson) {
  EXPECT_FALSE(ParseJson(R"({"seconds":NaN})").ok());
  EXPECT_FALSE(ParseJson(R"({"seconds":Infinity})").ok());
  EXPECT_FALSE(ParseJson(R"({"seconds":1e999})").ok());
}

TEST(Json, WhatIsNestedTooDeepIsRefused) {
  const auto nested = [](int levels) {
    return ParseJson(std::string(levels, '[') + R"("[[\"[")" + std::string(levels, ']'));
  };
  EXPECT_TRUE(nested(kMaxJsonNesting).ok());
  EXPECT_EQ(nested(kMaxJsonNesting + 1).error().message, "not JSON: nested deeper than 256 levels");
  // Writing it into an error message would overflow the stack.
  EXPECT_FALSE(nested(500'000).ok());
}

TEST(Json, LenientReadersFallBackOnOtherTypes) {
  const Json value = *ParseJson(R"({"a":{"b":3,"c":"x","n":null}})");
  EXPECT_EQ(IntAt(value, {"a", "b"}), 3);
  EXPECT_EQ(IntAt(value, {"a", "c"}, 7), 7);
  EXPECT_EQ(StringAt(value, {"a", "c"}), "x");
  EXPECT_EQ(FindJson(value, {"a", "n"}), nullptr);
}

TEST(JsonReader, CollectsEveryViolationWithItsPath) {
  const Json value = *ParseJson(R"({"replicas":"two","seed":1.5,"extra":1,"inner":{"on":3,"On":1}})");
  std::vector<std::string> violations;
  JsonReader reader(value, "spec", violations);
  int32_t replicas = 1;
  int64_t seed = 0;
  bool on = false;
  reader.Read("replicas", replicas);
  reader.Read("seed", seed);
  JsonReader inner = reader.Object("inner");
  inner.Read("on", on);
  inner.RejectUnknownKeys();
  reader.RejectUnknownKeys();
  EXPECT_EQ(violations, (std::vector<std::string>{
                            "spec.replicas: must be an integer, not \"two\"",
                            "spec.seed: must be an integer, not 1.5",
                            "spec.inner.on: must be true or false, not 3",
                            "spec.inner.On: unknown field: did you mean \"on\"?",
                            "spec.extra: unknown field",
                        }));
  EXPECT_EQ(replicas, 1);
}

TEST(JsonReader, RefusesWhatDoesNotFitIntoItsInteger) {
  const Json value =
      *ParseJson(R"({"port":4294967296,"step":18446744073709551615,"ranks":[18446744073709551615]})");
  std::vector<std::string> violations;
  JsonReader reader(value, "", violations);
  int32_t port = 1;
  int64_t step = 2;
  std::vector<int64_t> ranks;
  reader.Read("port", port);
  reader.Read("step", step);
  reader.Read("ranks", ranks);
  EXPECT_EQ(violations,
            (std::vector<std::string>{"port: must fit into 32 bits", "step: must fit into 64 bits",
                                      "ranks: must fit into 64 bits"}));
  EXPECT_EQ(step, 2) << "not -1, which means something";
}

}  // namespace
}  // namespace lockstep

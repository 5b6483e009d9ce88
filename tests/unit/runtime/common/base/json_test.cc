#include "runtime/common/base/json.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Json, ParseErrorIsAValue) { EXPECT_EQ(ParseJson("{").error().code, ErrorCode::kInvalidArgument); }

TEST(Json, LenientReadersFallBackOnOtherTypes) {
  const Json value = *ParseJson(R"({"a":{"b":3,"c":"x","n":null}})");
  EXPECT_EQ(IntAt(value, {"a", "b"}), 3);
  EXPECT_EQ(IntAt(value, {"a", "c"}, 7), 7);
  EXPECT_EQ(StringAt(value, {"a", "c"}), "x");
  EXPECT_EQ(FindJson(value, {"a", "n"}), nullptr);
}

TEST(JsonReader, CollectsEveryViolationWithItsPath) {
  const Json value = *ParseJson(R"({"replicas":"two","seed":1.5,"extra":1,"inner":{"on":3}})");
  std::vector<std::string> violations;
  JsonReader reader(value, "spec", violations);
  int32_t replicas = 1;
  int64_t seed = 0;
  bool on = false;
  reader.Read("replicas", replicas);
  reader.Read("seed", seed);
  reader.Object("inner").Read("on", on);
  reader.RejectUnknownKeys();
  EXPECT_EQ(violations, (std::vector<std::string>{
                            "spec.replicas: must be an integer, not \"two\"",
                            "spec.seed: must be an integer, not 1.5",
                            "spec.inner.on: must be true or false, not 3",
                            "spec.extra: unknown field",
                        }));
  EXPECT_EQ(replicas, 1);
}

}  // namespace
}  // namespace lockstep

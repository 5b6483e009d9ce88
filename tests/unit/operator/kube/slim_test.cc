#include "operator/kube/slim.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

TEST(FieldMask, KeepsWhatItNamesAndNothingElse) {
  const FieldMask mask{{"metadata", "labels"}, {"status", "containers", "*", "state"}, {"absent", "x"}};
  const Json object = *ParseJson(R"({"metadata": {"labels": {"a": "b"}, "managedFields": [1]}, "spec": {},
      "status": {"containers": [{"state": {"x": 1}, "image": "i"}, {"image": "j"}]}})");
  EXPECT_EQ(mask.Apply(object), *ParseJson(R"({"metadata": {"labels": {"a": "b"}},
      "status": {"containers": [{"state": {"x": 1}}, {}]}})"));
}

TEST(FieldMask, BearsOtherTypesThanExpected) {
  const FieldMask mask{{"a", "*", "b"}, {"c", "d"}};
  EXPECT_EQ(mask.Apply({{"a", "text"}, {"c", Json::array({1})}}),
            (Json{{"a", Json::object()}, {"c", Json::array()}}));
}

}  // namespace
}  // namespace lockstep::kube

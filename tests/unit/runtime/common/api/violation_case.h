#pragma once
// A change to a valid job that violates one rule, for the tests of this folder.

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "runtime/common/api/validate.h"
#include "tests/unit/runtime/common/api/job_text.h"

namespace lockstep::api {

struct ViolationCase {
  std::string name;
  std::string pointer;
  std::string value;
  std::string violation;  // part of the single expected violation, with the path
};

inline void ExpectTheViolation(const ViolationCase& expected) {
  const Json json = With(ValidJob(), expected.pointer, expected.value);
  const std::vector<std::string> violations = Validate(Parsed(json));
  ASSERT_EQ(violations.size(), 1u) << testing::PrintToString(violations);
  EXPECT_THAT(violations[0], testing::StartsWith(expected.violation));
}

// The spec of a job that is one process, modified by `changes`.
inline std::string OneProcess(const std::string& changes, const std::string& strategy = "dataparallel") {
  Json spec = With(With(ValidJob(), "/spec/training/strategy", '"' + strategy + '"'), "/spec/worker/replicas",
                   "1")["spec"];
  spec.merge_patch(*ParseJson(changes));
  return spec.dump();
}

}  // namespace lockstep::api

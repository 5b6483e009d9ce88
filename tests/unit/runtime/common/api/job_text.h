#pragma once
// Builds jobs for the tests of this folder: a valid manifest, and changes to it.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/common/api/training_job_json.h"

namespace lockstep::api {

// A complete, valid, supported job.
inline Json ValidJob() {
  return *ParseJson(R"({
    "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
    "metadata": {"name": "job", "namespace": "team"},
    "spec": {
      "worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "worker"}]}}},
      "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 10}
    }})");
}

// Sets the value at a JSON pointer and creates missing parents; `text` is JSON. "remove" removes the field.
inline Json With(Json job, const std::string& pointer, const std::string& text) {
  const Json::json_pointer at(pointer);
  if (text == "remove") {
    job.at(at.parent_pointer()).erase(at.back());
  } else {
    job[at] = *ParseJson(text);
  }
  return job;
}

inline TrainingJob Parsed(const Json& json) {
  std::vector<std::string> violations;
  TrainingJob job = TrainingJobFromJson(json, violations);
  EXPECT_EQ(violations, std::vector<std::string>{}) << json.dump(2);
  return job;
}

}  // namespace lockstep::api

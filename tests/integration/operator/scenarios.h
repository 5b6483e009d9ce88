#pragma once
// What happens to a job, step by step. Each step waits for its outcome, so that a run that nothing disturbs
// always makes the same writes.

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/integration/operator/test_job.h"

namespace lockstep::testing {

struct Step {
  std::function<void(TestJob&)> act;
  std::function<bool(const TestJob&)> is_done;
};

struct Scenario {
  std::string name;
  std::vector<Step> before;  // undisturbed
  std::vector<Step> steps;
  friend void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }
};

[[nodiscard]] std::vector<Scenario> AllScenarios();

}  // namespace lockstep::testing

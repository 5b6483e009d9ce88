#include "runtime/train/step/windows.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

std::vector<int64_t> EndsOf(const Windows& windows, int64_t begin, int64_t total) {
  std::vector<int64_t> ends;
  for (int64_t step = begin; step < total; step = ends.back()) ends.push_back(windows.EndAfter(step));
  return ends;
}

api::TrainingSpec Local(int64_t every_steps) {
  api::TrainingSpec spec;
  spec.strategy = api::Strategy::kLocalsgd;
  spec.sync.every_steps = every_steps;
  return spec;
}

TEST(Windows, EndAfterEachStepWithoutLocalsgd) {
  EXPECT_EQ(EndsOf(Windows({}, 3, 10, 4), 0, 4), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(Windows, EndAfterEveryHthStepAndAtTheEnd) {
  EXPECT_EQ(EndsOf(Windows(Local(4), {}, 10, 11), 0, 11), (std::vector<int64_t>{4, 8, 11}));
}

TEST(Windows, EndWhereAnEvaluationOrASaveIsDue) {
  api::TrainingSpec spec = Local(4);
  spec.evaluation = api::EvaluationSpec{.every_epochs = 2};
  EXPECT_EQ(EndsOf(Windows(spec, 9, 5, 21), 0, 21), (std::vector<int64_t>{4, 8, 9, 10, 12, 16, 18, 20, 21}));
}

TEST(Windows, AreTheSameOnesWhereverATrainingIsResumed) {
  const Windows windows(Local(6), 9, 100, 30);
  EXPECT_EQ(EndsOf(windows, 9, 30), (std::vector<int64_t>{12, 18, 24, 27, 30}));
  EXPECT_EQ(windows.EndAfter(14), 18) << "held from a time with another interval";
}

}  // namespace
}  // namespace lockstep::train

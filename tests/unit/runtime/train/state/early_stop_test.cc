#include "runtime/train/state/early_stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

constexpr api::EarlyStopSpec kPatient{.patience = 2};

// After evaluations at steps 10, 20, …: how many were done when training ended, and why.
struct End {
  int evaluations = 0;
  std::string why;
};
End EndOf(const api::EarlyStopSpec& spec, const std::vector<double>& values) {
  EvaluationRecord record;
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    const double value = values[static_cast<std::size_t>(i)];
    record = WithEvaluation(record, spec, 10 * (i + 1), value, value);
    EXPECT_EQ(record.step, 10 * (i + 1));
    if (const auto why = ReasonToStop(record, spec)) return {i + 1, *why};
  }
  return {};
}

TEST(EarlyStop, TrainsOnBeforeTheFirstEvaluation) {
  EXPECT_EQ(ReasonToStop({}, {.target = 0.0}), std::nullopt);
}

TEST(EarlyStop, EndsAtTheTarget) {
  const End by_accuracy = EndOf({.target = 0.9}, {0.5, 0.89, 0.9, 0.95});
  EXPECT_EQ(by_accuracy.evaluations, 3);
  EXPECT_THAT(by_accuracy.why, HasSubstr("accuracy 0.9 meets the target 0.9"));
  EXPECT_EQ(EndOf({.metric = api::EarlyStopMetric::kLoss, .target = 0.3}, {0.5, 0.31, 0.29}).evaluations, 3);
  EXPECT_EQ(EndOf({.target = 0.9, .min_delta = 0.05}, {0.86, 0.905}).evaluations, 2) << "by however little";
}

TEST(EarlyStop, EndsWhenNothingGetsBetter) {
  EXPECT_EQ(EndOf(kPatient, {0.5, 0.6, 0.6, 0.7, 0.65, 0.69}).evaluations, 6) << "since the best";
  EXPECT_EQ(EndOf(kPatient, {0.1, 0.2, 0.3, 0.4}).evaluations, 0);
  api::EarlyStopSpec by_loss = kPatient;
  by_loss.metric = api::EarlyStopMetric::kLoss;
  EXPECT_EQ(EndOf(by_loss, {0.5, 0.6, 0.7}).evaluations, 3);
  by_loss.min_delta = 0.2;
  EXPECT_EQ(EndOf(by_loss, {0.9, 0.8, 0.6, 0.5, 0.45}).evaluations, 5) << "small steps are none";
}

TEST(EarlyStop, TakesWhatIsNotFiniteForNoImprovement) {
  const double none = std::nan("");
  EXPECT_EQ(EndOf(kPatient, {none, 0.2, none, none}).evaluations, 4);
  api::EarlyStopSpec by_loss{.metric = api::EarlyStopMetric::kLoss, .patience = 2};
  EXPECT_EQ(EndOf(by_loss, {none, 9.0, none, none}).evaluations, 4);
}

}  // namespace
}  // namespace lockstep::train

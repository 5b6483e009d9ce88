#include "runtime/witness/trainer_status.h"

#include <gtest/gtest.h>

namespace lockstep::witness {
namespace {

// As transformers 5.24 posts it.
constexpr const char* kPosted = R"({"trainerStatus": {"lastUpdatedTime": "2026-11-25T19:55:01+00:00",
  "progressPercentage": 13, "estimatedRemainingSeconds": 41, "metrics": [
    {"name": "loss", "value": "3.899"}, {"name": "grad_norm", "value": "0.8753"},
    {"name": "learning_rate", "value": "4.7e-05"}, {"name": "epoch", "value": "0.0016"},
    {"name": "current_step", "value": "20"}, {"name": "total_steps", "value": "150"},
    {"name": "current_epoch", "value": "0.25"}]}})";

TEST(ParseTrainerStatus, ReadsWhatTransformersPosts) {
  const TrainerStatus status = ParseTrainerStatus(kPosted).value();
  EXPECT_EQ(status.step, 20);
  EXPECT_EQ(status.total_steps, 150);
  EXPECT_EQ(status.epoch, 0.25);
  EXPECT_EQ(status.loss, 3.899);
  EXPECT_EQ(status.learning_rate, 4.7e-05);
  EXPECT_EQ(status.gradient_norm, 0.8753);
}

TEST(ParseTrainerStatus, IgnoresValuesThatAreNoFiniteNumbers) {
  const TrainerStatus status = ParseTrainerStatus(R"({"trainerStatus": {"metrics": [
    {"name": "loss", "value": "nan"}, {"name": "current_step", "value": "-3"}, {"name": "total_steps", "value": "1e300"},
    {"name": "learning_rate", "value": "0.1x"}, {"name": "grad_norm"}, 7]}})")
                                   .value();
  EXPECT_EQ(status.loss, 0);
  EXPECT_EQ(status.step, 0);
  EXPECT_EQ(status.total_steps, 0);
  EXPECT_EQ(status.learning_rate, 0);
}

TEST(ParseTrainerStatus, RejectsOtherDocuments) {
  for (const char* body : {"", "[]", "{}", R"({"trainerStatus": 1})", "{"})
    EXPECT_FALSE(ParseTrainerStatus(body).ok()) << body;
  EXPECT_TRUE(ParseTrainerStatus(R"({"trainerStatus": {}})").ok());
}

}  // namespace
}  // namespace lockstep::witness

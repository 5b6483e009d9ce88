#include "runtime/common/api/conditions.h"

#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

WallTime At(int seconds) { return WallTime(std::chrono::seconds(seconds)); }

ConditionChange Change(std::string_view type, ConditionStatus status, std::string_view reason,
                       std::string message = "") {
  return {.type = type, .status = status, .reason = reason, .message = std::move(message)};
}

TEST(SetCondition, MovesTheTransitionTimeOnlyWithTheStatus) {
  std::vector<Condition> conditions;
  EXPECT_TRUE(
      SetCondition(conditions, Change(condition::kProgressing, ConditionStatus::kFalse, "A"), 1, At(10)));
  EXPECT_TRUE(
      SetCondition(conditions, Change(condition::kProgressing, ConditionStatus::kFalse, "B"), 2, At(20)));
  EXPECT_EQ(conditions[0].last_transition_time, At(10));
  EXPECT_EQ(conditions[0].observed_generation, 2);
  EXPECT_TRUE(
      SetCondition(conditions, Change(condition::kProgressing, ConditionStatus::kTrue, "C"), 2, At(30)));
  EXPECT_EQ(conditions[0].last_transition_time, At(30));
  EXPECT_EQ(conditions.size(), 1u);
}

TEST(SetCondition, SaysWhetherAnythingChanged) {
  std::vector<Condition> conditions;
  const ConditionChange change = Change(condition::kScheduled, ConditionStatus::kTrue, "A", "text");
  EXPECT_TRUE(SetCondition(conditions, change, 1, At(10)));
  EXPECT_FALSE(SetCondition(conditions, change, 1, At(20)));
}

TEST(SetCondition, NeverFlipsATerminalConditionBack) {
  std::vector<Condition> conditions;
  SetCondition(conditions, Change(condition::kFailed, ConditionStatus::kFalse, "A"), 1, At(5));
  EXPECT_TRUE(
      SetCondition(conditions, Change(condition::kFailed, ConditionStatus::kTrue, "B", "why"), 1, At(10)));
  EXPECT_FALSE(SetCondition(conditions, Change(condition::kFailed, ConditionStatus::kFalse, "C"), 2, At(20)));
  EXPECT_FALSE(
      SetCondition(conditions, Change(condition::kFailed, ConditionStatus::kTrue, "D", "other"), 2, At(20)));
  EXPECT_EQ(conditions[0].reason, "B");
  EXPECT_TRUE(IsFinished(conditions));
}

TEST(SetCondition, CutsAMessageThatIsTooLong) {
  std::vector<Condition> conditions;
  SetCondition(conditions, Change(condition::kFailed, ConditionStatus::kTrue, "A", std::string(100000, 'x')),
               1, At(1));
  EXPECT_LE(conditions[0].message.size(), 4096u);
}

TEST(StateOf, TerminalAndSuspendedComeBeforeTheRest) {
  std::vector<Condition> conditions;
  EXPECT_EQ(StateOf(conditions), "Created");
  SetCondition(conditions, Change(condition::kScheduled, ConditionStatus::kFalse, "A"), 1, At(1));
  EXPECT_EQ(StateOf(conditions), "Pending");
  SetCondition(conditions, Change(condition::kScheduled, ConditionStatus::kTrue, "A"), 1, At(1));
  EXPECT_EQ(StateOf(conditions), "Starting");
  SetCondition(conditions, Change(condition::kProgressing, ConditionStatus::kTrue, "A"), 1, At(1));
  EXPECT_EQ(StateOf(conditions), "Running");
  SetCondition(conditions, Change(condition::kRestarting, ConditionStatus::kTrue, "A"), 1, At(1));
  EXPECT_EQ(StateOf(conditions), "Restarting");
  SetCondition(conditions, Change(condition::kSuspended, ConditionStatus::kTrue, "A"), 1, At(1));
  EXPECT_EQ(StateOf(conditions), "Suspended");
  SetCondition(conditions, Change(condition::kComplete, ConditionStatus::kTrue, "A"), 1, At(1));
  EXPECT_EQ(StateOf(conditions), "Complete");
}

}  // namespace
}  // namespace lockstep::api

#include "operator/reconcile/failure_rules.h"

#include <gtest/gtest.h>

namespace lockstep::reconcile {
namespace {

using api::FailureAction;
using api::FailureCause;
using api::FailureRule;

FailureRule OnExitCodes(FailureAction action, api::ExitCodeOperator match, std::vector<int64_t> values) {
  return {.name = "codes", .action = action, .on_exit_codes = api::ExitCodeMatch{match, std::move(values)}};
}

Pod FailedPod(int exit_code) {
  Pod pod;
  pod.name = "job-worker-1";
  pod.phase = PodPhase::kFailed;
  pod.exit_code = exit_code;
  return pod;
}

TEST(FailureRules, TheFirstThatMatchesDecides) {
  const api::FailurePolicy policy{
      .rules = {OnExitCodes(FailureAction::kRestartIgnoringLimit, api::ExitCodeOperator::kIn, {42, 43}),
                OnExitCodes(FailureAction::kFailJob, api::ExitCodeOperator::kNotIn, {1, 137}),
                {.action = FailureAction::kRestart, .on_causes = {FailureCause::kInfrastructure}}}};
  const struct {
    const char* name;
    int exit_code;
    Remedy remedy;
  } cases[] = {{"listed", 42, Remedy::kForgive},
               {"not listed", 44, Remedy::kFailJob},
               {"a user error matches only NotIn", 3, Remedy::kFailJob},
               {"by its cause", 137, Remedy::kCharge}};
  for (const auto& test : cases) {
    EXPECT_EQ(JudgeFailure(FailedPod(test.exit_code), policy).remedy, test.remedy) << test.name;
  }
}

TEST(FailureRules, ReadNoMeaningIntoTheExitCodesOfAProgram) {
  const api::FailurePolicy policy{
      .rules = {OnExitCodes(FailureAction::kFailJob, api::ExitCodeOperator::kIn, {42})}};
  for (const int exit_code : {2, 3, 4, 5, 7, 9}) {
    Pod pod = FailedPod(exit_code);
    pod.runs_program = true;
    const FailureVerdict verdict = JudgeFailure(pod, policy);
    EXPECT_EQ(verdict.remedy, Remedy::kCharge) << exit_code;
    EXPECT_FALSE(verdict.suspects_node) << exit_code;
    EXPECT_EQ(FailureOf(pod).cause, FailureCause::kInfrastructure) << exit_code;
  }
  Pod listed = FailedPod(42);
  listed.runs_program = true;
  EXPECT_EQ(JudgeFailure(listed, policy).remedy, Remedy::kFailJob) << "but rules may";
  Pod preempted = FailedPod(143);
  preempted.runs_program = true;
  EXPECT_EQ(JudgeFailure(preempted, policy).remedy, Remedy::kForgive);
}

TEST(FailureRules, MayRestartWhatWouldFailTheJob) {
  const api::FailurePolicy policy{
      .rules = {{.action = FailureAction::kRestart, .on_causes = {FailureCause::kUserError}}}};
  EXPECT_EQ(JudgeFailure(FailedPod(4), policy).remedy, Remedy::kCharge);
}

TEST(FailureRules, ChargeAPodThatWasEvictedForItsOwnUseOfStorage) {
  for (const int exit_code : {137, 143}) {
    Pod pod = FailedPod(exit_code);
    pod.overstepped = true;
    pod.message = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Gi\". ";
    const FailureVerdict verdict = JudgeFailure(pod, {});
    EXPECT_EQ(verdict.remedy, Remedy::kCharge) << exit_code;
    EXPECT_FALSE(verdict.suspects_node) << "it would be the same on any other";
    EXPECT_EQ(verdict.cause, FailureCause::kUserError);
    EXPECT_EQ(verdict.message,
              "pod job-worker-1: exit code " + std::to_string(exit_code) +
                  ": evicted because it exceeded a limit of its own: Usage of EmptyDir volume "
                  "\"scratch\" exceeds the limit \"1Gi\".");
  }
}

TEST(FailureRules, MatchConditionsOfThePodByTheirStatus) {
  const api::FailurePolicy policy{
      .rules = {{.action = FailureAction::kRestartIgnoringLimit,
                 .on_pod_conditions = {{"GpuBad", api::ConditionStatus::kTrue}}}}};
  Pod pod = FailedPod(1);
  EXPECT_EQ(JudgeFailure(pod, policy).remedy, Remedy::kCharge);
  pod.conditions["GpuBad"] = "False";
  EXPECT_EQ(JudgeFailure(pod, policy).remedy, Remedy::kCharge);
  pod.conditions["GpuBad"] = "True";
  EXPECT_EQ(JudgeFailure(pod, policy).remedy, Remedy::kForgive);
}

TEST(FailureRules, WhereNoneMatchesNothingChanges) {
  const api::FailurePolicy policy{
      .rules = {{.action = FailureAction::kFailJob, .on_causes = {FailureCause::kHang}}}};
  EXPECT_EQ(JudgeFailure(FailedPod(1), policy).remedy, Remedy::kCharge);
  EXPECT_EQ(JudgeFailure(FailedPod(3), policy).remedy, Remedy::kFailJob);
  EXPECT_EQ(JudgeFailure(FailedPod(143), policy).remedy, Remedy::kForgive);
}

TEST(FailureRules, SuspectTheNodeWhenItMayBeResponsible) {
  const api::FailurePolicy by_code{
      .rules = {OnExitCodes(FailureAction::kReplacePod, api::ExitCodeOperator::kIn, {3})}};
  const struct {
    const char* name;
    int exit_code;
    api::FailurePolicy policy;
    bool suspects;
  } cases[] = {{"ranks that failed in place too often", 1, {}, true},
               {"a preemption", 143, {}, false},
               {"the rendezvous was away", 5, {}, false},
               {"a rule says ReplacePod", 3, by_code, true}};
  for (const auto& test : cases) {
    EXPECT_EQ(JudgeFailure(FailedPod(test.exit_code), test.policy).suspects_node, test.suspects) << test.name;
  }
}

TEST(FailureRules, LeaveARankThatDiedInALivingPodToItsSupervisor) {
  const rendezvous::Departure hang{
      .pod = "job-worker-1", .cause = protocol::FailureCause::kHang, .reason = "rank process 0 hangs"};
  const struct {
    FailureAction action;
    std::optional<Remedy> remedy;
  } cases[] = {{FailureAction::kRestart, std::nullopt},
               {FailureAction::kRestartIgnoringLimit, std::nullopt},
               {FailureAction::kFailJob, Remedy::kFailJob},
               {FailureAction::kReplacePod, Remedy::kCharge},
               {FailureAction::kShrinkJob, Remedy::kShrink}};
  for (const auto& test : cases) {
    const auto verdict =
        JudgeDeparture(hang, {.rules = {{.action = test.action, .on_causes = {FailureCause::kHang}}}});
    EXPECT_EQ(verdict ? std::optional(verdict->remedy) : std::nullopt, test.remedy)
        << api::NameOf(test.action);
  }
  EXPECT_FALSE(JudgeDeparture(hang, {})) << "no rule";
}

}  // namespace
}  // namespace lockstep::reconcile

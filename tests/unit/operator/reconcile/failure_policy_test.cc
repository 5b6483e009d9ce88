#include "operator/reconcile/failure_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "runtime/common/api/conditions.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using api::FailureAction;
using api::FailureCause;
using api::FailureRule;
using testing::ActionsOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::JobWorld;

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
    bool permanent;
    bool charged;
  } cases[] = {{"listed", 42, false, false},
               {"not listed", 44, true, false},
               {"a user error is listed by nobody but NotIn", 3, true, false},
               {"by its cause", 137, false, true}};
  for (const auto& test : cases) {
    const FailureVerdict verdict = JudgeFailure(FailedPod(test.exit_code), policy);
    EXPECT_EQ(verdict.permanent, test.permanent) << test.name;
    EXPECT_EQ(verdict.charged, test.charged) << test.name;
  }
}

TEST(FailureRules, MayRestartWhatWouldFailTheJob) {
  const api::FailurePolicy policy{
      .rules = {{.action = FailureAction::kRestart, .on_causes = {FailureCause::kUserError}}}};
  const FailureVerdict verdict = JudgeFailure(FailedPod(4), policy);
  EXPECT_FALSE(verdict.permanent);
  EXPECT_TRUE(verdict.charged);
}

TEST(FailureRules, MatchConditionsOfThePodByTheirStatus) {
  const api::FailurePolicy policy{
      .rules = {{.action = FailureAction::kRestartIgnoringLimit,
                 .on_pod_conditions = {{"GpuBad", api::ConditionStatus::kTrue}}}}};
  Pod pod = FailedPod(1);
  EXPECT_TRUE(JudgeFailure(pod, policy).charged);
  pod.conditions["GpuBad"] = "False";
  EXPECT_TRUE(JudgeFailure(pod, policy).charged);
  pod.conditions["GpuBad"] = "True";
  EXPECT_FALSE(JudgeFailure(pod, policy).charged);
}

TEST(FailureRules, WhereNoneMatchesNothingChanges) {
  const api::FailurePolicy policy{
      .rules = {{.action = FailureAction::kFailJob, .on_causes = {FailureCause::kHang}}}};
  EXPECT_TRUE(JudgeFailure(FailedPod(1), policy).charged);
  EXPECT_TRUE(JudgeFailure(FailedPod(3), policy).permanent);
  EXPECT_FALSE(JudgeFailure(FailedPod(143), policy).charged);
}

TEST(FailureRules, FailTheJobForARankThatDiedInALivingPod) {
  JobWorld world;
  world.Running(0).Running(1).Round(2, {0, 1}, 5);
  world.observed().rendezvous.changes = {
      {.round = 1,
       .cause = "Hang",
       .departures = {{.pod = "job-worker-1", .cause = "Hang", .reason = "rank process 0 hangs"}}}};
  EXPECT_FALSE(api::IsFinished(MakePlan(world.observed()).status.conditions));
  world.observed().job.spec.failure_policy.rules = {
      {.name = "no-hangs", .action = FailureAction::kFailJob, .on_causes = {FailureCause::kHang}}};
  const Plan plan = MakePlan(world.observed());
  const api::Condition* failed = api::FindCondition(plan.status.conditions, api::condition::kFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->reason, "FailurePolicy");
  EXPECT_EQ(failed->message,
            "the rule no-hangs of failurePolicy.rules says FailJob: job-worker-1: rank process 0 hangs");
  ASSERT_EQ(plan.status.restarts.size(), 1U);
  EXPECT_EQ(plan.status.restarts[0].rule, "no-hangs");
}

TEST(FailureRules, RestartIgnoringLimitNeedsNoBudget) {
  JobWorld world;
  world.MaxRestarts(0).Running(0).Failed(1, 42);
  world.observed().job.spec.failure_policy.rules = {
      OnExitCodes(FailureAction::kRestartIgnoringLimit, api::ExitCodeOperator::kIn, {42})};
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1"));
  EXPECT_EQ(plan.status.attempt, 0);
}

}  // namespace
}  // namespace lockstep::reconcile

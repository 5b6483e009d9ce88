#include "operator/reconcile/checkpoint_removal.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/removal_pod.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::reconcile {
namespace {

namespace condition = api::condition;

// The first pause; later pauses are as long as all attempts before them.
constexpr Seconds kFirstPause{10};
constexpr std::size_t kMaxRemovalReason = 300;

bool IsAsked(const api::TrainingJobSpec& spec) { return spec.checkpoint && spec.checkpoint->delete_with_job; }

// Ranks store only in rounds.
bool MayHaveStored(const Observed& observed) {
  const auto& round = observed.job.status.rendezvous;
  return (round && round->round > 0) || observed.rendezvous.round > 0;
}

// Why the pod does not finish; empty: no problem is known.
std::string ProblemOf(const Pod& pod) {
  std::string text;
  if (pod.phase == PodPhase::kFailed) {
    text = pod.message.empty() ? "failed" : pod.message;
    if (pod.exit_code && pod.message.empty()) text = "exit code " + std::to_string(*pod.exit_code);
  } else if (!pod.waiting_reason.empty()) {
    text = pod.waiting_reason + ": " + pod.waiting_message;
  } else if (pod.node.empty()) {
    text = pod.unschedulable;
  }
  return text.empty() ? text : "pod " + pod.name + ": " + Truncate(text, kMaxRemovalReason);
}

// Also covers the case without a pod, because the API server rejected it.
std::string ProblemOf(const Observed& observed) {
  if (observed.removal) return ProblemOf(*observed.removal);
  const api::Condition* stalled = api::FindCondition(observed.job.status.conditions, condition::kStalled);
  const bool is_refused = stalled != nullptr && stalled->reason == api::reason::kPodRejected;
  return is_refused ? Truncate(stalled->message, kMaxRemovalReason) : "";
}

kube::EventNote Note(bool warning, std::string reason, std::string note) {
  return {warning, std::move(reason), "RemoveCheckpoints", std::move(note)};
}

RemovalDecision GiveUp(const Observed& observed, const std::string& why) {
  // The command comes first, because long events are truncated.
  std::string story = "what this job stored remains; `" + Join(RemovalCommand(observed.job), " ") +
                      "` removes it, with the credentials of the job. Not removed, because " + why;
  RemovalDecision decision{.to_delete = observed.removal, .is_over = true, .reason = story};
  decision.notes.push_back(Note(true, "CheckpointsLeft", std::move(story)));
  return decision;
}

RemovalDecision Over(const Observed& observed, std::string reason) {
  return {.to_delete = observed.removal, .is_over = true, .reason = std::move(reason)};
}

RemovalDecision Continue(const Observed& observed, WallTime begin, WallTime deadline) {
  RemovalDecision decision{.next = Seconds(deadline - observed.now)};
  const std::string problem = ProblemOf(observed);
  const api::Condition* reported =
      api::FindCondition(observed.job.status.conditions, condition::kCheckpointsRemoved);
  // Between two pods nothing new is known, so the problem of the last one stays in the message.
  decision.waits_for = !problem.empty() ? problem
                       : reported != nullptr
                           ? reported->message
                           : "removing what this job stored below " + observed.job.spec.checkpoint->uri;
  if (!observed.removal) {
    decision.starts = true;
    decision.reason = "spec.checkpoint.deleteWithJob is true";
    return decision;
  }
  const Pod& pod = *observed.removal;
  if (pod.phase != PodPhase::kFailed || pod.deleting) return decision;
  if (reported == nullptr || reported->message != problem)
    decision.notes.push_back(
        Note(true, "CheckpointRemovalFailed", problem + "; tried again until " + FormatTime(deadline)));
  const WallTime created = std::max(pod.created.value_or(begin), begin);
  const Seconds pause = std::max(kFirstPause, Seconds(created - begin)) - Seconds(observed.now - created);
  if (pause > Seconds(0)) {
    decision.next = std::min(*decision.next, pause);
  } else {
    decision.to_delete = pod;
    decision.reason = "it failed, and another is tried";
  }
  return decision;
}

}  // namespace

RemovalDecision DecideRemoval(const Observed& observed) {
  if (!observed.pods.empty()) return {};
  if (!HasFinalizer(observed.job) || !IsAsked(observed.job.spec) || !MayHaveStored(observed))
    return Over(observed, "no pod is left");
  if (observed.removal && observed.removal->phase == PodPhase::kSucceeded) {
    RemovalDecision decision = Over(observed, "no pod and no checkpoint is left");
    decision.notes.push_back(
        Note(false, "CheckpointsRemoved",
             "what this job stored below " + observed.job.spec.checkpoint->uri + " is removed"));
    return decision;
  }
  if (observed.namespace_ends) return GiveUp(observed, "the namespace is being deleted and takes no pod");
  const api::Condition* reported =
      api::FindCondition(observed.job.status.conditions, condition::kCheckpointsRemoved);
  const WallTime begin = reported != nullptr ? reported->last_transition_time : observed.now;
  const WallTime deadline = begin + kRemovalPatience;
  if (observed.now < deadline) return Continue(observed, begin, deadline);
  const std::string problem = ProblemOf(observed);
  return GiveUp(observed, problem.empty()
                              ? "it was not done within " + std::to_string(kRemovalPatience.count()) + " s"
                              : problem);
}

}  // namespace lockstep::reconcile

#include "operator/reconcile/rollout.h"

#include <algorithm>
#include <utility>

#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

// True if no replica is missing or leaving, so that one may be replaced.
bool IsFull(const Observed& observed, const PodGroups& groups) {
  const auto stays = [](const auto& entry) {
    return entry.second.phase == PodPhase::kRunning && !entry.second.deleting;
  };
  return static_cast<int32_t>(observed.rendezvous.members.size()) >= observed.job.spec.worker.replicas &&
         std::all_of(groups.slots.begin(), groups.slots.end(), stays);
}

// True if no pod holds state that could be lost.
bool MayReplaceAll(const Observed& observed) {
  return observed.job.spec.failure_policy.restart_strategy == api::RestartStrategy::kRecreate ||
         !api::IsTrue(observed.job.status.conditions, api::condition::kInitialized);
}

}  // namespace

std::string TemplateHash(const api::TrainingJobSpec& spec) {
  return StableHash(DumpJson(spec.worker.pod_template));
}

Rollout FindRollout(const Observed& observed, const PodGroups& groups) {
  const std::string newest = TemplateHash(observed.job.spec);
  Rollout rollout;
  for (const auto& [slot, pod] : groups.slots) {
    if (!pod.template_hash.empty() && pod.template_hash != newest && pod.IsActive() && !pod.deleting) {
      ++rollout.outdated;
      rollout.to_replace.push_back(pod);
    }
  }
  if (rollout.outdated == 0 || MayReplaceAll(observed)) return rollout;
  // Highest slot first; pods that have not started come before all others.
  std::stable_sort(rollout.to_replace.begin(), rollout.to_replace.end(), [](const Pod& a, const Pod& b) {
    return std::pair(a.phase == PodPhase::kPending, a.slot) >
           std::pair(b.phase == PodPhase::kPending, b.slot);
  });
  const bool may_go = rollout.to_replace.front().phase == PodPhase::kPending || IsFull(observed, groups);
  rollout.to_replace.resize(may_go ? 1 : 0);
  return rollout;
}

}  // namespace lockstep::reconcile

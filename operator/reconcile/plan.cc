#include "operator/reconcile/plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "operator/reconcile/decision.h"
#include "operator/reconcile/desired_pod.h"
#include "operator/reconcile/force_delete.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/gpus.h"
#include "operator/reconcile/kueue.h"
#include "operator/reconcile/launcher.h"
#include "operator/reconcile/notes.h"
#include "operator/reconcile/owned_objects.h"
#include "operator/reconcile/plan_objects.h"
#include "operator/reconcile/profile_request.h"
#include "operator/reconcile/progress.h"
#include "operator/reconcile/removal_pod.h"
#include "operator/reconcile/rollout.h"
#include "operator/reconcile/status.h"
#include "operator/reconcile/waiting.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/rendezvous_settings_of.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

using Actions = std::vector<PlannedAction>;

// The request is part of each heartbeat's answer.
constexpr std::size_t kMaxSaveRequest = 256;

// Highest slot first, as in every choice between pods.
std::vector<Pod> InOrder(std::vector<Pod> pods) {
  std::sort(pods.begin(), pods.end(), [](const Pod& a, const Pod& b) {
    return std::pair(a.slot.value_or(-1), a.name) > std::pair(b.slot.value_or(-1), b.name);
  });
  return pods;
}

template <typename Predicate>
void DeletePods(const std::vector<Pod>& pods, Predicate predicate, const std::string& why, Actions& actions) {
  for (const Pod& pod : InOrder(pods)) {
    if (!pod.deleting && predicate(pod)) actions.push_back({DeletePod{pod.name, pod.uid, ""}, why});
  }
}

bool Any(const Pod&) { return true; }

// With the observed version as precondition: a pod that has ended meanwhile is kept, with its log.
void DeleteActivePods(const std::vector<Pod>& pods, Actions& actions) {
  for (const Pod& pod : InOrder(pods)) {
    if (pod.deleting || !pod.IsActive()) continue;
    actions.push_back({DeletePod{pod.name, pod.uid, pod.resource_version}, "the job has finished"});
  }
}

void PlanDelete(const Observed& observed, const RemovalDecision& removal, Actions& actions) {
  DeletePods(observed.pods, Any, "the job is being deleted", actions);
  if (removal.starts) {
    const bool has_account =
        HasOwnAccount(observed.job) && observed.owned.contains(KeyOfKind(kServiceAccounts));
    actions.push_back({StartRemoval{DesiredRemovalPod(observed.job, has_account)}, removal.reason});
  }
  if (removal.to_delete)
    actions.push_back({EndRemoval{removal.to_delete->name, removal.to_delete->uid}, removal.reason});
  if (removal.is_over && HasFinalizer(observed.job)) actions.push_back({RemoveFinalizer{}, removal.reason});
}

std::optional<Seconds> UntilExpiry(const Observed& observed, const api::TrainingJobStatus& status) {
  const auto& ttl = observed.job.spec.run_policy.ttl_seconds_after_finished;
  if (!ttl || !status.completion_time) return std::nullopt;
  return Seconds(static_cast<double>(*ttl)) - Seconds(observed.now - *status.completion_time);
}

void PlanFinished(const Observed& observed, const api::TrainingJobStatus& status, Plan& plan) {
  PlanObjectsOfFinished(observed, plan.actions);
  switch (observed.job.spec.run_policy.clean_pod_policy) {
    case api::CleanPodPolicy::kAll:
      DeletePods(observed.pods, Any, "runPolicy.cleanPodPolicy is All", plan.actions);
      break;
    case api::CleanPodPolicy::kRunning: DeleteActivePods(observed.pods, plan.actions); break;
    case api::CleanPodPolicy::kNone: break;
  }
  const auto expiry = UntilExpiry(observed, status);
  if (expiry && *expiry <= Seconds(0)) {
    plan.actions.push_back({DeleteJob{observed.job.metadata.uid, observed.job.metadata.resource_version},
                            "runPolicy.ttlSecondsAfterFinished has passed"});
  }
}

// Stops once there are more than a pass creates (LimitPods). Lowest slot first: when a job grows, lost pods
// are replaced before new slots are filled.
void CreateMissing(const Observed& observed, const PodGroups& groups, const KueueState& kueue,
                   Actions& actions) {
  const bool in_gang = JoinsGang(observed);
  const std::vector<std::string> avoided = AvoidedNodes(observed.job.status, observed.now);
  std::size_t created = 0;
  for (int32_t slot = 0; slot < observed.job.spec.pod_count() && created <= kPodsPerPass; ++slot) {
    if (groups.slots.contains(slot) || IsGivenUp(observed.job, slot)) continue;
    Json pod = DesiredPod(observed.job, slot, avoided);
    if (in_gang) JoinGang(pod, observed.job, observed.served);
    if (kueue.admission) AddAdmission(pod, *kueue.admission);
    AddLauncher(pod, observed.job, observed.settings);
    actions.push_back({CreatePod{std::move(pod)}, "the slot is free"});
    ++created;
  }
}

// Leaves what exceeds kPodsPerPass to the next pass; true if it did.
bool LimitPods(Actions& actions) {
  std::size_t created = 0;
  std::size_t deleted = 0;
  return std::erase_if(actions, [&](const PlannedAction& entry) {
           if (std::holds_alternative<CreatePod>(entry.action)) return ++created > kPodsPerPass;
           return std::holds_alternative<DeletePod>(entry.action) && ++deleted > kPodsPerPass;
         }) > 0;
}

void DeleteOthers(const PodGroups& groups, const FailureDecision& failures, Actions& actions) {
  std::set<std::string> failed;
  for (const Pod& pod : failures.to_delete) failed.insert(pod.uid);
  std::vector<Pod> pods;
  pods.reserve(groups.slots.size());
  for (const auto& [slot, pod] : groups.slots) pods.push_back(pod);
  DeletePods(
      pods, [&](const Pod& pod) { return !failed.contains(pod.uid); },
      "failurePolicy.restartStrategy is Recreate", actions);
}

void PlanRun(const Observed& observed, const PodGroups& groups, const Decision& decision,
             const KueueState& kueue, Actions& actions) {
  const FailureDecision& failures = decision.failures;
  const GangStart& gang = decision.gang;
  if (!HasFinalizer(observed.job) || InstallationOf(observed.job) != observed.settings.installation)
    actions.push_back({ClaimJob{}, "this operator runs the job, and its pods must be gone before it is"});
  PlanObjects(observed, actions);
  if (GangIsOutdated(observed)) return DeletePods(observed.pods, Any, "the gang has another size", actions);
  for (const Pod& pod : failures.to_mark) {
    actions.push_back(
        {MarkPod{pod.name, pod.resource_version, failures.attempt}, "its failure is charged as an attempt"});
  }
  DeletePods(groups.surplus, Any, "worker.replicas is " + std::to_string(observed.job.spec.worker.replicas),
             actions);
  if (failures.recreates && groups.slots.size() > failures.to_delete.size()) {
    return DeleteOthers(groups, failures, actions);
  }
  for (const Pod& pod : failures.to_delete) {
    actions.push_back({DeletePod{pod.name, pod.uid, pod.resource_version}, "it or its node failed"});
  }
  if (failures.recreates) return;
  for (const Pod& pod : gang.to_delete) {
    actions.push_back(
        {DeletePod{pod.name, pod.uid}, "schedulingPolicy.gang.scheduleTimeoutSeconds has passed"});
  }
  if (gang.holds_back || !WhyNoGang(observed.job, observed.served).empty()) return;
  if (failures.to_delete.empty()) {
    for (const Pod& pod : FindRollout(observed, groups).to_replace) {
      actions.push_back({DeletePod{pod.name, pod.uid}, "spec.worker.template has changed"});
    }
  }
  CreateMissing(observed, groups, kueue, actions);
}

std::optional<Seconds> PlanForceDeletions(const Observed& observed, Actions& actions) {
  const ForceDeletion deletion = FindForceDeletions(observed);
  for (const Pod& pod : deletion.due) {
    actions.push_back({DeletePod{.name = pod.name, .uid = pod.uid, .by_force = true},
                       "its node is dead: runPolicy.forceDeleteAfterSeconds"});
  }
  return deletion.next;
}

std::string SaveRequestOf(const api::ObjectMeta& job) {
  const auto found = job.annotations.find(std::string(api::kAnnotationSave));
  return found == job.annotations.end() ? "" : Truncate(found->second, kMaxSaveRequest);
}

std::map<int, std::string> DeparturesOf(const Observed& observed) {
  std::map<int, std::string> departures;
  for (const Pod& pod : observed.pods) {
    if (!observed.nodes || !pod.slot || !pod.IsActive()) continue;
    const auto node = observed.nodes->find(pod.node);
    if (node == observed.nodes->end()) continue;
    if (const auto why = DepartureOf(node->second)) departures[*pod.slot] = *why;
  }
  return departures;
}

// A suspended job expects no members: its workers save and leave.
rendezvous::JobSettings SettingsFor(const Observed& observed, Mode mode) {
  rendezvous::JobSettings settings = api::RendezvousSettingsOf(observed.job.spec);
  if (mode == Mode::kSuspend) {
    settings.expected_members = 0;
    settings.standby_members = 0;
  }
  if (!observed.job.spec.training || observed.job.spec.checkpoint)
    settings.save_request = SaveRequestOf(observed.job.metadata);
  if (const auto profile = ProfileRequestOf(observed.job); profile.ok() && profile->has_value()) {
    settings.profile_request = (*profile)->text;
    settings.profile_steps = (*profile)->steps;
  }
  const auto& round = observed.job.status.rendezvous;
  const bool has_trained = api::IsTrue(observed.job.status.conditions, api::condition::kInitialized);
  if (!has_trained) settings.min_members = std::max(settings.min_members, GangSize(observed.job.spec));
  settings.waits_for = PodsNotStarted(observed);
  settings.departures = DeparturesOf(observed);
  settings.first_round = (round ? round->round : 0) + 1;
  return settings;
}

// While pods live they may send requests, and the answers also say that the job is over.
bool NeedsRendezvous(const Observed& observed, Mode mode) {
  if (mode == Mode::kRun || mode == Mode::kDrain) return true;
  return std::any_of(observed.pods.begin(), observed.pods.end(),
                     [](const Pod& pod) { return pod.IsActive(); });
}

void PlanRendezvous(const Observed& observed, Mode mode, Plan& plan) {
  if (!NeedsRendezvous(observed, mode)) return;
  if (IsValid(observed) || mode == Mode::kSuspend) {
    plan.rendezvous = SettingsFor(observed, mode);
  } else {
    plan.keeps_rendezvous = true;
  }
}

// The earliest time at which another decision may be due without an event.
std::optional<std::chrono::milliseconds> NextLook(const Observed& observed, const Decision& decision,
                                                  const api::TrainingJobStatus& status,
                                                  std::optional<Seconds> next_force) {
  std::optional<Seconds> next = next_force;
  const auto consider = [&](std::optional<Seconds> delay) {
    if (delay && *delay > Seconds(0)) next = next ? std::min(*next, *delay) : *delay;
  };
  consider(decision.deadline);
  consider(decision.failures.wait);
  consider(decision.gang.next);
  consider(decision.removal.next);
  if (decision.mode == Mode::kRun) consider(UntilShrunk(observed));
  if (decision.mode == Mode::kFinished) consider(UntilExpiry(observed, status));
  const bool may_train = decision.mode == Mode::kRun || decision.mode == Mode::kHold;
  const bool trains = may_train && observed.rendezvous.world_size > 0;
  if (trains) consider(Seconds(kProgressPeriod));
  if (!next) return std::nullopt;
  return std::chrono::ceil<std::chrono::milliseconds>(*next);
}

Plan PlanOf(const Observed& observed, const KueueState& kueue) {
  const PodGroups groups = GroupPods(observed.pods, observed.job.spec.pod_count());
  const Decision decision = Decide(observed, groups, kueue);
  Plan plan;
  plan.ignored = decision.mode == Mode::kIgnore;
  if (plan.ignored) {
    if (!decision.message.empty()) plan.events = {NoteOfConflict(decision.message)};
    return plan;
  }
  plan.status = MakeStatus(observed, groups, decision, kueue);
  switch (decision.mode) {
    case Mode::kDelete: PlanDelete(observed, decision.removal, plan.actions); break;
    case Mode::kFinished:
      // The status says that the job has finished before its pods are deleted: after a crash nothing else
      // would show it.
      if (decision.finish_as.empty()) PlanFinished(observed, plan.status, plan);
      break;
    case Mode::kSuspend: DeletePods(observed.pods, Any, decision.message, plan.actions); break;
    case Mode::kRun: PlanRun(observed, groups, decision, kueue, plan.actions); break;
    case Mode::kDrain:
    case Mode::kHold: PlanAuthority(observed, plan.actions); break;
    case Mode::kIgnore: break;
  }
  const auto next_force = PlanForceDeletions(observed, plan.actions);
  // A gang is released in one pass, within its pause, so that another gang finds all nodes free.
  const bool has_more = decision.gang.to_delete.empty() && LimitPods(plan.actions);
  plan.lost = decision.failures.lost;
  PlanRendezvous(observed, decision.mode, plan);
  plan.events = MakeNotes(observed, decision, plan.actions, plan.status);
  plan.gpus = CountGpus(observed, groups, decision);
  plan.requeue_after =
      has_more ? std::chrono::milliseconds(0) : NextLook(observed, decision, plan.status, next_force);
  return plan;
}

// The Workload is made from the spec, everything else from the admitted part of it.
Observed AsAdmitted(Observed observed, const KueueAdmission& admission) {
  observed.job.spec = AsAdmitted(std::move(observed.job.spec), admission);
  return observed;
}

}  // namespace

Plan MakePlan(const Observed& observed) {
  const KueueState kueue = KueueStateOf(observed);
  Plan plan =
      kueue.admission ? PlanOf(AsAdmitted(observed, *kueue.admission), kueue) : PlanOf(observed, kueue);
  if (!plan.ignored && !observed.job.metadata.deletion_timestamp)
    PlanKueue(observed, kueue, plan.status, plan.actions);
  return plan;
}

}  // namespace lockstep::reconcile

#include "operator/reconcile/gang_start.h"

#include <algorithm>

#include "operator/reconcile/gang.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

constexpr Seconds kFirstBackoff{10};
constexpr int kMostDoublings = 6;
// Another job with rejected pods tries again at least this often (controller/backoff.h). A job that released
// its pods waits longer, so that the other job finds the quota free.
constexpr Seconds kLongestRetry{60};
// For any job of which the API server admits only some pods, if the spec sets no time.
constexpr Seconds kRefusedAtMost{300};

// Since when the API server rejects pods of the job, mostly for lack of quota; nullopt: it does not.
std::optional<WallTime> RefusedSince(const api::TrainingJobStatus& status) {
  const api::Condition* stalled = api::FindCondition(status.conditions, api::condition::kStalled);
  const bool is_refused = stalled != nullptr && stalled->status == api::ConditionStatus::kTrue &&
                          stalled->reason == api::reason::kPodRejected;
  return is_refused ? std::optional(stalled->last_transition_time) : std::nullopt;
}

// Jobs that released their pods for each other must not retry in step: the pause varies by uid, from half to
// one and a half times.
Seconds BackoffOf(const api::TrainingJob& job, int32_t releases) {
  const std::string hash = StableHash(job.metadata.uid + std::to_string(releases));
  const double spread =
      0.5 + static_cast<double>(std::stoul(hash.substr(hash.size() - 4), nullptr, 16)) / 65536.0;
  return kFirstBackoff * static_cast<double>(1 << std::clamp(releases - 1, 0, kMostDoublings)) * spread;
}

// The pause after a release.
struct Pause {
  WallTime end{};
  bool is_refused = false;  // by the API server; otherwise there were no nodes
};

// The newest one; nullopt: there was no release.
std::optional<Pause> FindPause(const api::TrainingJob& job) {
  const auto& gang = job.status.gang;
  if (!gang || !gang->released_at) return std::nullopt;
  const auto refused = RefusedSince(job.status);
  const bool is_refused = refused && *refused <= *gang->released_at;
  const Seconds length = BackoffOf(job, gang->releases) + (is_refused ? kLongestRetry : Seconds(0));
  return Pause{*gang->released_at + std::chrono::ceil<WallTime::duration>(length), is_refused};
}

// nullopt: the job waits for nodes without a limit.
std::optional<Seconds> TimeoutOf(const api::TrainingJobSpec& spec, bool is_refused) {
  const auto& gang = spec.scheduling_policy.gang;
  if (gang && gang->schedule_timeout_seconds) return Seconds(*gang->schedule_timeout_seconds);
  return is_refused ? std::optional(kRefusedAtMost) : std::nullopt;
}

// Why a gang is incomplete, and since when.
struct Shortage {
  WallTime since{};
  bool is_refused = false;  // pods could not be created; otherwise they have no node
};

std::optional<Shortage> FindShortage(const Observed& observed, const PodGroups& groups) {
  const int32_t wanted = GangSize(observed.job.spec);
  int32_t made = 0;
  int32_t placed = 0;
  std::optional<WallTime> first;   // oldest pod of the job
  std::optional<WallTime> oldest;  // oldest pod without a node
  for (const auto& [slot, pod] : groups.slots) {
    if (pod.deleting || !pod.IsActive()) continue;
    ++made;
    placed += pod.node.empty() ? 0 : 1;
    if (pod.created) first = std::min(first.value_or(*pod.created), *pod.created);
    if (pod.node.empty() && pod.created) oldest = std::min(oldest.value_or(*pod.created), *pod.created);
  }
  const auto refused = RefusedSince(observed.job.status);
  if (refused && made > 0 && made < wanted) {
    // A job without pods blocks no other job, so the time counts from its first pod.
    return Shortage{.since = std::max(*refused, first.value_or(*refused)), .is_refused = true};
  }
  const bool has_scheduler = GangBackendOf(observed.job, observed.served) != api::GangProvider::kNone;
  if (has_scheduler || !oldest || placed >= wanted) return std::nullopt;
  return Shortage{.since = *oldest};
}

std::string ReleaseNote(const api::TrainingJob& job, bool is_refused) {
  const std::string fewer = "fewer than " + std::to_string(GangSize(job.spec));
  if (!is_refused)
    return fewer +
           " pods found a node within schedulingPolicy.gang.scheduleTimeoutSeconds; all pods are released";
  const api::Condition* stalled = api::FindCondition(job.status.conditions, api::condition::kStalled);
  const auto seconds = static_cast<int64_t>(TimeoutOf(job.spec, is_refused)->count());
  return fewer + " pods were admitted within " + std::to_string(seconds) +
         " s (schedulingPolicy.gang.scheduleTimeoutSeconds); all are released: " + stalled->message;
}

}  // namespace

GangStart DecideGangStart(const Observed& observed, const PodGroups& groups) {
  if (api::IsTrue(observed.job.status.conditions, api::condition::kInitialized)) return {};
  GangStart start{.status = observed.job.status.gang};
  if (const auto pause = FindPause(observed.job); pause && pause->end > observed.now) {
    start.holds_back = true;
    start.is_refused = pause->is_refused;
    start.next = Seconds(pause->end - observed.now);
    for (const auto& [slot, pod] : groups.slots) {
      if (!pod.deleting) start.to_delete.push_back(pod);
    }
    return start;
  }
  const auto shortage = FindShortage(observed, groups);
  if (!shortage) return start;
  const auto timeout = TimeoutOf(observed.job.spec, shortage->is_refused);
  if (!timeout) return start;
  start.next = *timeout - Seconds(observed.now - shortage->since);
  if (*start.next > Seconds(0)) return start;
  start.next.reset();
  start.holds_back = true;
  start.is_refused = shortage->is_refused;
  const int32_t releases = start.status ? start.status->releases + 1 : 1;
  start.status = {.releases = releases, .released_at = observed.now};
  start.note = ReleaseNote(observed.job, shortage->is_refused);
  return start;
}

}  // namespace lockstep::reconcile

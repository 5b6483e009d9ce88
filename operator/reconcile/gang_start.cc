#include "operator/reconcile/gang_start.h"

#include <algorithm>

#include "operator/reconcile/gang.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

constexpr Seconds kFirstBackoff{10};
constexpr int kMostDoublings = 6;

// Jobs that gave way to each other must not come back in step: half to once and a half of the time, by uid.
Seconds BackoffOf(const api::TrainingJob& job, int32_t releases) {
  const std::string hash = StableHash(job.metadata.uid + std::to_string(releases));
  const double spread =
      0.5 + static_cast<double>(std::stoul(hash.substr(hash.size() - 4), nullptr, 16)) / 65536.0;
  return kFirstBackoff * static_cast<double>(1 << std::clamp(releases - 1, 0, kMostDoublings)) * spread;
}

bool IsAtStart(const Observed& observed) {
  const auto& gang = observed.job.spec.scheduling_policy.gang;
  return gang && gang->schedule_timeout_seconds &&
         GangBackendOf(observed.job, observed.served) == api::GangProvider::kNone &&
         !api::IsTrue(observed.job.status.conditions, api::condition::kInitialized);
}

// nullopt: enough of them have their places.
std::optional<Seconds> UntilTimeout(const Observed& observed, const PodGroups& groups) {
  int32_t placed = 0;
  std::optional<WallTime> oldest;
  for (const auto& [slot, pod] : groups.slots) {
    if (pod.deleting || !pod.IsActive()) continue;
    placed += pod.node.empty() ? 0 : 1;
    if (pod.node.empty() && pod.created) oldest = std::min(oldest.value_or(*pod.created), *pod.created);
  }
  if (!oldest || placed >= GangSize(observed.job.spec)) return std::nullopt;
  return Seconds(*observed.job.spec.scheduling_policy.gang->schedule_timeout_seconds) -
         Seconds(observed.now - *oldest);
}

}  // namespace

GangStart DecideGangStart(const Observed& observed, const PodGroups& groups) {
  if (!IsAtStart(observed)) return {};
  GangStart start{.status = observed.job.status.gang};
  if (start.status && start.status->released_at) {
    const Seconds left =
        BackoffOf(observed.job, start.status->releases) - Seconds(observed.now - *start.status->released_at);
    if (left > Seconds(0)) {
      start.holds_back = true;
      start.next = left;
      for (const auto& [slot, pod] : groups.slots) {
        if (!pod.deleting) start.to_delete.push_back(pod);
      }
      return start;
    }
  }
  start.next = UntilTimeout(observed, groups);
  if (!start.next || *start.next > Seconds(0)) return start;
  start.next.reset();
  start.holds_back = true;
  const int32_t releases = start.status ? start.status->releases + 1 : 1;
  start.status = {.releases = releases, .released_at = observed.now};
  start.note =
      "fewer than " + std::to_string(GangSize(observed.job.spec)) +
      " pods found a node within schedulingPolicy.gang.scheduleTimeoutSeconds; all places are given back";
  return start;
}

}  // namespace lockstep::reconcile

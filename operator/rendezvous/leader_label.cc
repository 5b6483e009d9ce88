#include "operator/rendezvous/leader_label.h"

#include <algorithm>
#include <array>

#include "runtime/common/api/names.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/log.h"

namespace lockstep::rendezvous {
namespace {

constexpr kube::BackoffPolicy kLabelBackoff{.base = Milliseconds(500), .cap = Milliseconds(10'000)};
constexpr Milliseconds kLabelPeriod{10'000};
constexpr const char* kLabelled = "true";

std::string LabelOf(const Json& pod, std::string_view label) {
  return StringAt(pod, {"metadata", "labels", label});
}

bool AreOfOneInstallation(const Json& a, const Json& b) {
  static constexpr std::array<std::string_view, 3> kLabels = {api::kLabelName, "app.kubernetes.io/instance",
                                                              "app.kubernetes.io/component"};
  return std::all_of(kLabels.begin(), kLabels.end(),
                     [&](std::string_view label) { return LabelOf(a, label) == LabelOf(b, label); });
}

// Logs only the first of consecutive failures.
Milliseconds DelayAfter(const Result<void>& done, int& failures) {
  failures = done.ok() ? 0 : failures + 1;
  if (failures == 1) log::Warning("cannot set the leader's label yet", {{"error", done.error().ToString()}});
  return kube::BackoffDelay(kLabelBackoff, failures, kube::RandomUnit());
}

}  // namespace

Result<void> LabelLeader(kube::KubeWriter& writer, const kube::ObjectKey& pod, bool leads) {
  const Json value = leads ? Json(kLabelled) : Json(nullptr);
  const Json patch = {{"metadata", {{"labels", {{api::kLabelLeader, value}}}}}};
  const auto patched =
      writer.Patch(kube::kPods, pod, patch, {.field_manager = std::string(api::kFieldManager)});
  if (patched.ok() || patched.error().code == ErrorCode::kNotFound) return {};
  return patched.error().WithContext("labelling the pod " + pod.ToString());
}

Result<void> LabelLeadersOnly(kube::KubeClient& client, const kube::ObjectKey& leader,
                              const std::set<std::string>& leaders) {
  const auto own = client.Get(kube::kPods, leader);
  if (!own.ok() && own.error().code == ErrorCode::kNotFound) return {};
  if (!own.ok()) return own.error();
  if (LabelOf(*own, api::kLabelLeader) != kLabelled) LOCKSTEP_TRY(LabelLeader(client, leader, true));
  kube::ListOptions labelled{.name_space = leader.name_space,
                             .label_selector = std::string(api::kLabelLeader) + "=" + kLabelled};
  do {
    LOCKSTEP_TRY(const kube::ListPage page, client.List(kube::kPods, labelled, {}));
    for (const Json& pod : page.items) {
      const kube::ObjectKey key = kube::KeyOf(pod);
      if (key == leader || leaders.contains(key.name) || LabelOf(pod, api::kLabelLeader) != kLabelled ||
          !AreOfOneInstallation(pod, *own))
        continue;
      LOCKSTEP_TRY(LabelLeader(client, key, false));
      log::Info("removed the leader's label from a pod that does not lead", {{"pod", key.ToString()}});
    }
    labelled.continue_token = page.continue_token;
  } while (!labelled.continue_token.empty());
  return {};
}

void RemoveLeaderLabel(kube::KubeWriter& writer, const kube::ObjectKey& pod, const std::stop_token& stop,
                       const kube::Pause& pause) {
  int failures = 0;
  while (!stop.stop_requested()) {
    const auto done = LabelLeader(writer, pod, false);
    const Milliseconds delay = DelayAfter(done, failures);
    if (done.ok() || !done.error().IsTransient()) return;
    pause(delay, stop);
  }
}

void KeepLeaderLabel(kube::KubeClient& client, const kube::ObjectKey& leader,
                     const std::function<std::set<std::string>()>& leaders, const std::stop_token& stop,
                     const kube::Pause& pause) {
  int failures = 0;
  while (!stop.stop_requested()) {
    const auto done = LabelLeadersOnly(client, leader, leaders());
    const Milliseconds delay = DelayAfter(done, failures);
    pause(done.ok() ? kLabelPeriod : delay, stop);
  }
}

}  // namespace lockstep::rendezvous

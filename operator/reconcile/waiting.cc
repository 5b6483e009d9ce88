#include "operator/reconcile/waiting.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/failure_policy.h"
#include "operator/reconcile/gang.h"
#include "runtime/common/api/conditions.h"

namespace lockstep::reconcile {
namespace {

bool IsAboutImage(const std::string& reason) { return reason.find("Image") != std::string::npos; }

// Each Secret with the field that refers to it.
std::vector<std::pair<std::string, std::string>> SecretsOf(const api::TrainingJobSpec& spec) {
  std::vector<std::pair<std::string, std::string>> secrets;
  if (spec.checkpoint && spec.checkpoint->secret_ref)
    secrets.emplace_back("spec.checkpoint.secretRef", spec.checkpoint->secret_ref->name);
  if (spec.training && spec.training->data.secret_ref)
    secrets.emplace_back("spec.training.data.secretRef", spec.training->data.secret_ref->name);
  return secrets;
}

WaitingReason StuckContainer(const Observed& observed, const Pod& pod) {
  const std::string detail = "pod " + pod.name + ": " + pod.waiting_reason + ": " + pod.waiting_message;
  if (IsAboutImage(pod.waiting_reason)) {
    return {api::reason::kImagePull, "spec.worker.template: the image cannot be pulled; " + detail};
  }
  // The kubelet names the missing object only in the message: `secret "name" not found`.
  for (const auto& [field, secret] : SecretsOf(observed.job.spec)) {
    if (pod.waiting_message.find("\"" + secret + "\"") == std::string::npos) continue;
    return {api::reason::kSecretMissing, field + ": create the Secret \"" + secret + "\" in namespace \"" +
                                             observed.job.metadata.namespace_name +
                                             "\"; the pods start as soon as it exists (" + detail + ")"};
  }
  return {api::reason::kContainerConfig, "spec.worker.template: a container cannot be created; " + detail};
}

}  // namespace

std::optional<WaitingReason> FindWaitingReason(const Observed& observed) {
  if (std::string why = WhyNoGang(observed.job, observed.served); !why.empty()) {
    return WaitingReason{.reason = api::reason::kGangUnavailable, .message = std::move(why)};
  }
  std::vector<Pod> pods = observed.pods;
  std::sort(pods.begin(), pods.end(), [](const Pod& a, const Pod& b) { return a.name < b.name; });
  for (const Pod& pod : pods) {
    if (pod.IsActive() && !pod.deleting && !pod.waiting_reason.empty()) return StuckContainer(observed, pod);
  }
  for (const Pod& pod : pods) {
    if (pod.IsActive() && pod.node.empty() && !pod.unschedulable.empty()) {
      return WaitingReason{.reason = api::reason::kUnschedulable,
                           .message = "pod " + pod.name + ": " + pod.unschedulable,
                           .needs_people = false};
    }
  }
  return std::nullopt;
}

std::string PodsNotStarted(const Observed& observed) {
  const auto has_started = [&](const Pod& pod) {
    const bool runs = pod.phase == PodPhase::kRunning || pod.phase == PodPhase::kSucceeded;
    return runs && !pod.deleting && pod.slot && *pod.slot < observed.job.spec.pod_count();
  };
  const int64_t wanted =
      observed.job.spec.worker.replicas - static_cast<int64_t>(GivenUpSlots(observed.job).size());
  const auto started = std::count_if(observed.pods.begin(), observed.pods.end(), has_started);
  if (started >= wanted) return "";
  return std::to_string(wanted - started) + " of " + std::to_string(wanted) + " pods have not started";
}

std::optional<Seconds> UntilShrunk(const Observed& observed) {
  const auto& elastic = observed.job.spec.elastic_policy;
  if (!elastic) return std::nullopt;
  std::optional<WallTime> oldest;
  for (const Pod& pod : observed.pods) {
    const bool has_no_place = pod.phase == PodPhase::kPending && pod.node.empty() && !pod.deleting;
    if (has_no_place && pod.created) oldest = std::min(oldest.value_or(*pod.created), *pod.created);
  }
  if (!oldest) return std::nullopt;
  return Seconds(elastic->shrink_after_seconds) - Seconds(observed.now - *oldest);
}

}  // namespace lockstep::reconcile

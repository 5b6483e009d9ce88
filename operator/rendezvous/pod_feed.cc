#include "operator/rendezvous/pod_feed.h"

#include "operator/reconcile/failure_rules.h"
#include "operator/reconcile/owner.h"
#include "operator/reconcile/pods.h"

namespace lockstep::rendezvous {

std::optional<PodLoss> LossFrom(const kube::ObjectChange& change, const std::string& container) {
  const bool is_gone = change.after == nullptr;
  const Json& json = is_gone ? *change.before : *change.after;
  const auto job = reconcile::JobOf(json);
  if (!job) return std::nullopt;
  PodLoss loss{.job = *job, .end = {.pod_uid = kube::UidOf(json)}};
  const reconcile::Pod pod = reconcile::PodFromJson(json, container);
  loss.end.cause = reconcile::FailureOf(pod).cause;
  loss.end.exit_code = pod.exit_code;
  loss.end.node = pod.node;
  // A worker that completed has reported that itself, and is not a loss.
  if (pod.phase == reconcile::PodPhase::kSucceeded) return std::nullopt;
  if (pod.phase == reconcile::PodPhase::kFailed) {
    loss.end.reason = pod.exit_code ? "exit code " + std::to_string(*pod.exit_code) : "the pod failed";
    if (!pod.message.empty()) loss.end.reason += ": " + pod.message;
    return loss;
  }
  if (!is_gone) return std::nullopt;
  loss.end.reason = "the pod was deleted";
  return loss;
}

void PodFeed::OnChange(const kube::ObjectChange& change) {
  const Json& json = change.after == nullptr ? *change.before : *change.after;
  const auto job = reconcile::JobOf(json);
  const kube::Object owner = job ? jobs_.Get({job->name_space, job->name}) : nullptr;
  const std::string container =
      owner == nullptr ? "trainer" : StringAt(*owner, {"spec", "worker", "containerName"}, "trainer");
  if (const auto loss = LossFrom(change, container)) service_.PodGone(loss->job, loss->end);
}

}  // namespace lockstep::rendezvous

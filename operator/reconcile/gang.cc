#include "operator/reconcile/gang.h"

#include "operator/reconcile/desired.h"

namespace lockstep::reconcile {
namespace {

using api::GangProvider;

constexpr const char* kVolcano = "volcano";
constexpr const char* kCoschedulingLabel = "scheduling.x-k8s.io/pod-group";
constexpr const char* kVolcanoAnnotation = "scheduling.k8s.io/group-name";

std::optional<kube::Resource> KindOf(GangProvider backend) {
  switch (backend) {
    case GangProvider::kCoscheduling: return kCoschedulingGroups;
    case GangProvider::kVolcano: return kVolcanoGroups;
    case GangProvider::kAuto:
    case GangProvider::kNone:
    case GangProvider::kWorkload: break;
  }
  return std::nullopt;
}

}  // namespace

std::optional<GangProvider> GangBackendOf(const api::TrainingJob& job, const std::set<std::string>& served) {
  const auto& gang = job.spec.scheduling_policy.gang;
  if (!gang) return std::nullopt;
  if (gang->provider != GangProvider::kAuto) return gang->provider;
  const bool is_volcanos = StringAt(job.spec.worker.pod_template, {"spec", "schedulerName"}) == kVolcano;
  if (is_volcanos && served.contains(KeyOfKind(kVolcanoGroups))) return GangProvider::kVolcano;
  if (!is_volcanos && served.contains(KeyOfKind(kCoschedulingGroups))) return GangProvider::kCoscheduling;
  return GangProvider::kNone;
}

std::string WhyNoGang(const api::TrainingJob& job, const std::set<std::string>& served) {
  const auto backend = GangBackendOf(job, served);
  const auto kind = backend ? KindOf(*backend) : std::nullopt;
  if (!kind || served.contains(KeyOfKind(*kind))) return "";
  return "spec.schedulingPolicy.gang.provider: the cluster does not serve " + KeyOfKind(*kind) + " of " +
         std::string(api::NameOf(*backend)) + "; install it and restart the operator, or use Auto";
}

int32_t GangSize(const api::TrainingJobSpec& spec) {
  const auto& gang = spec.scheduling_policy.gang;
  return gang && gang->min_count ? *gang->min_count : spec.min_replicas();
}

std::optional<OwnedObject> DesiredPodGroup(const api::TrainingJob& job, const std::set<std::string>& served) {
  const auto backend = GangBackendOf(job, served);
  const auto kind = backend ? KindOf(*backend) : std::nullopt;
  if (!kind || !served.contains(KeyOfKind(*kind))) return std::nullopt;
  Json spec = {{"minMember", GangSize(job.spec)}};
  const auto& timeout = job.spec.scheduling_policy.gang->schedule_timeout_seconds;
  if (*backend == GangProvider::kCoscheduling && timeout) spec["scheduleTimeoutSeconds"] = *timeout;
  const std::string& priority = job.spec.scheduling_policy.priority_class_name;
  if (*backend == GangProvider::kVolcano && !priority.empty()) spec["priorityClassName"] = priority;
  return OwnedObject{*kind, {{"metadata", OwnedMetadata(job, job.metadata.name)}, {"spec", std::move(spec)}}};
}

void JoinGang(Json& pod, const api::TrainingJob& job, const std::set<std::string>& served) {
  const auto backend = GangBackendOf(job, served);
  if (backend == GangProvider::kCoscheduling)
    pod["metadata"]["labels"][kCoschedulingLabel] = job.metadata.name;
  if (backend == GangProvider::kVolcano) {
    pod["metadata"]["annotations"][kVolcanoAnnotation] = job.metadata.name;
    pod["spec"]["schedulerName"] = kVolcano;
  }
}

}  // namespace lockstep::reconcile

#include "operator/reconcile/gang.h"

#include <algorithm>

#include "operator/reconcile/desired.h"

namespace lockstep::reconcile {
namespace {

using api::GangProvider;

constexpr const char* kVolcano = "volcano";
constexpr const char* kCoschedulingLabel = "scheduling.x-k8s.io/pod-group";
// minCount is immutable in this version, and mutable from v1alpha3 on.
constexpr std::string_view kFixedVersion = "v1alpha2";
constexpr const char* kVolcanoAnnotation = "scheduling.k8s.io/group-name";

std::optional<kube::Resource> CoreGroups(const std::set<std::string>& served) {
  for (const kube::Resource& resource : kCoreGroups) {
    if (served.contains(KeyOfKind(resource))) return resource;
  }
  return std::nullopt;
}

// The first served kind of the back end; the first kind if none is served.
std::optional<kube::Resource> KindOf(GangProvider backend, const std::set<std::string>& served) {
  switch (backend) {
    case GangProvider::kCoscheduling: return kCoschedulingGroups;
    case GangProvider::kVolcano: return kVolcanoGroups;
    case GangProvider::kWorkload: return CoreGroups(served).value_or(kCoreGroups.front());
    case GangProvider::kAuto:
    case GangProvider::kNone: break;
  }
  return std::nullopt;
}

bool IsAnyPlaced(const Observed& observed) {
  return std::any_of(observed.pods.begin(), observed.pods.end(),
                     [](const Pod& pod) { return pod.IsActive() && !pod.node.empty(); });
}

}  // namespace

std::optional<GangProvider> GangBackendOf(const api::TrainingJob& job, const std::set<std::string>& served) {
  const auto& gang = job.spec.scheduling_policy.gang;
  if (!gang) return std::nullopt;
  if (gang->provider != GangProvider::kAuto) return gang->provider;
  const bool is_volcanos = StringAt(job.spec.worker.pod_template, {"spec", "schedulerName"}) == kVolcano;
  if (is_volcanos && served.contains(KeyOfKind(kVolcanoGroups))) return GangProvider::kVolcano;
  if (!is_volcanos && served.contains(KeyOfKind(kCoschedulingGroups))) return GangProvider::kCoscheduling;
  if (!is_volcanos && CoreGroups(served)) return GangProvider::kWorkload;
  return GangProvider::kNone;
}

std::string WhyNoGang(const api::TrainingJob& job, const std::set<std::string>& served) {
  const auto backend = GangBackendOf(job, served);
  const auto kind = backend ? KindOf(*backend, served) : std::nullopt;
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
  const auto kind = backend ? KindOf(*backend, served) : std::nullopt;
  if (!kind || !served.contains(KeyOfKind(*kind))) return std::nullopt;
  const Json metadata = {{"metadata", OwnedMetadata(job, job.metadata.name)}};
  if (*backend == GangProvider::kWorkload) {
    OwnedObject group{.resource = *kind, .object = metadata, .is_immutable = kind->version == kFixedVersion};
    group.object["spec"]["schedulingPolicy"]["gang"]["minCount"] = GangSize(job.spec);
    return group;
  }
  Json spec = {{"minMember", GangSize(job.spec)}};
  const auto& timeout = job.spec.scheduling_policy.gang->schedule_timeout_seconds;
  if (*backend == GangProvider::kCoscheduling && timeout) spec["scheduleTimeoutSeconds"] = *timeout;
  const std::string& priority = job.spec.scheduling_policy.priority_class_name;
  if (*backend == GangProvider::kVolcano && !priority.empty()) spec["priorityClassName"] = priority;
  OwnedObject group{.resource = *kind, .object = metadata};
  group.object["spec"] = std::move(spec);
  return group;
}

bool GangIsOutdated(const Observed& observed) {
  const auto desired = DesiredPodGroup(observed.job, observed.served);
  if (!desired || !desired->is_immutable || IsAnyPlaced(observed)) return false;
  const auto found = observed.owned.find(KeyOfKind(desired->resource));
  return found != observed.owned.end() && !IsAsDesired(*desired, found->second);
}

bool JoinsGang(const Observed& observed) {
  return GangBackendOf(observed.job, observed.served) != GangProvider::kWorkload || !IsAnyPlaced(observed);
}

void JoinGang(Json& pod, const api::TrainingJob& job, const std::set<std::string>& served) {
  const auto backend = GangBackendOf(job, served);
  if (backend == GangProvider::kCoscheduling)
    pod["metadata"]["labels"][kCoschedulingLabel] = job.metadata.name;
  if (backend == GangProvider::kVolcano) {
    pod["metadata"]["annotations"][kVolcanoAnnotation] = job.metadata.name;
    pod["spec"]["schedulerName"] = kVolcano;
  }
  if (backend == GangProvider::kWorkload)
    pod["spec"]["schedulingGroup"] = {{"podGroupName", job.metadata.name}};
}

}  // namespace lockstep::reconcile

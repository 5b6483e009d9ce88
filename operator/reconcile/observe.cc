#include "operator/reconcile/observe.h"

#include <utility>

#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job_json.h"
#include "runtime/common/api/unsupported.h"
#include "runtime/common/api/validate.h"

namespace lockstep::reconcile {
namespace {

Json WithoutManagedFields(Json job) {
  const auto metadata = job.find("metadata");
  if (metadata == job.end()) return job;
  metadata->erase("managedFields");
  if (const auto annotations = metadata->find("annotations"); annotations != metadata->end()) {
    annotations->erase("kubectl.kubernetes.io/last-applied-configuration");
  }
  return job;
}

Json SlimPod(Json pod) { return PodFields().Apply(std::move(pod)); }

Json SlimOwned(Json object) {
  static const kube::FieldMask mask{{"metadata", "name"},
                                    {"metadata", "namespace"},
                                    {"metadata", "uid"},
                                    {"metadata", "resourceVersion"},
                                    {"metadata", "labels"},
                                    {"metadata", "ownerReferences"},
                                    {"spec"},
                                    {"data"}};
  return mask.Apply(std::move(object));
}

Json OwnedObject(const kube::Store& store, const kube::ObjectKey& key, const std::string& owner_uid) {
  const kube::Object object = store.Get(key);
  return object != nullptr && kube::ControllerUidOf(*object) == owner_uid ? *object : Json();
}

}  // namespace

Caches::Caches()
    : jobs(WithoutManagedFields),
      pods(SlimPod, kube::ControllerUidOf),
      services(SlimOwned, kube::ControllerUidOf),
      config_maps(SlimOwned, kube::ControllerUidOf) {}

protocol::JobIdentity IdentityOf(const api::TrainingJob& job) {
  return {job.metadata.namespace_name, job.metadata.name, job.metadata.uid};
}

std::optional<Observed> Observe(const kube::ObjectKey& key, const Caches& caches,
                                const rendezvous::RendezvousService& rendezvous,
                                const ClusterSettings& settings, WallTime now) {
  const kube::Object object = caches.jobs.Get(key);
  if (object == nullptr) return std::nullopt;
  Observed observed;
  observed.job = api::TrainingJobFromJson(*object, observed.violations);
  // Rules between fields make sense only where each field could be read.
  if (observed.violations.empty()) observed.violations = api::Validate(observed.job);
  for (const auto& field : api::FindUnsupported(observed.job.spec))
    observed.unsupported.push_back(field.ToString());
  const std::string& uid = observed.job.metadata.uid;
  for (const kube::Object& pod : caches.pods.ByIndex(uid)) {
    observed.pods.push_back(PodFromJson(*pod, observed.job.spec.worker.container_name));
  }
  observed.service = OwnedObject(caches.services, {key.name_space, api::ServiceName(key.name)}, uid);
  observed.config_map = OwnedObject(caches.config_maps, {key.name_space, api::ConfigMapName(key.name)}, uid);
  observed.rendezvous = rendezvous.View(IdentityOf(observed.job));
  observed.settings = settings;
  observed.now = now;
  return observed;
}

}  // namespace lockstep::reconcile

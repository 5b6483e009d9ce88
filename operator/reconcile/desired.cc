#include "operator/reconcile/desired.h"

#include <algorithm>

#include "runtime/common/api/names.h"
#include "runtime/common/api/worker_config_of.h"

namespace lockstep::reconcile {
// Without blockOwnerDeletion: the job's finalizer waits for the pods, and all other objects may be deleted
// after the job. With it, an API server with the admission plugin OwnerReferencesPermissionEnforcement, as in
// OpenShift, would reject such objects for up to a minute after the definition of jobs is installed, until it
// can map the owner's kind.
Json OwnedMetadata(const api::TrainingJob& job, const std::string& name) {
  return {{"name", name},
          {"namespace", job.metadata.namespace_name},
          {"labels", {{api::kLabelJob, job.metadata.name}, {api::kLabelManagedBy, api::kManagedByValue}}},
          {"ownerReferences", Json::array({{{"apiVersion", api::kApiVersion},
                                            {"kind", api::kKind},
                                            {"name", job.metadata.name},
                                            {"uid", job.metadata.uid},
                                            {"controller", true}}})}};
}

Json DesiredService(const api::TrainingJob& job) {
  return {{"metadata", OwnedMetadata(job, api::ServiceName(job.metadata.name))},
          {"spec",
           {{"clusterIP", "None"},
            // The default of Services with a selector. A Service without one would get two IP families even
            // on a cluster with one, and could then never get a selector.
            {"ipFamilyPolicy", "SingleStack"},
            // A worker must find its peers before any of them is ready.
            {"publishNotReadyAddresses", true},
            {"selector", {{api::kLabelJob, job.metadata.name}, {api::kLabelName, api::kWorkerNameValue}}},
            {"ports", Json::array({{{"name", "metrics"},
                                    {"port", job.spec.observability.metrics_port},
                                    {"protocol", "TCP"},
                                    {"targetPort", job.spec.observability.metrics_port}}})}}}};
}

protocol::WorkerConfig DesiredWorkerConfig(const api::TrainingJob& job, const ClusterSettings& settings) {
  protocol::WorkerConfig config = api::WorkerConfigOf(job);
  config.rendezvous.url = settings.rendezvous_url;
  if (!settings.ca_pem.empty()) config.rendezvous.ca_file = std::string("/etc/lockstep/") + kCaKey;
  return config;
}

Json DesiredConfigMap(const api::TrainingJob& job, const ClusterSettings& settings) {
  Json data = {{kConfigKey, DumpJson(protocol::WorkerConfigToJson(DesiredWorkerConfig(job, settings)))}};
  if (!settings.ca_pem.empty()) data[kCaKey] = settings.ca_pem;
  return {{"metadata", OwnedMetadata(job, api::ConfigMapName(job.metadata.name))}, {"data", std::move(data)}};
}

bool Covers(const Json& actual, const Json& desired) {
  if (desired.is_object()) {
    return actual.is_object() &&
           std::all_of(desired.items().begin(), desired.items().end(), [&](const auto& item) {
             const auto found = actual.find(item.key());
             return found != actual.end() && Covers(*found, item.value());
           });
  }
  if (desired.is_array()) {
    if (!actual.is_array() || actual.size() != desired.size()) return false;
    for (std::size_t i = 0; i < desired.size(); ++i) {
      if (!Covers(actual[i], desired[i])) return false;
    }
    return true;
  }
  return actual == desired;
}

}  // namespace lockstep::reconcile

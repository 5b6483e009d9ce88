#include "operator/reconcile/owned_objects.h"

#include <algorithm>

#include "operator/reconcile/desired.h"
#include "runtime/common/api/names.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

Json WorkersOf(const api::TrainingJob& job) {
  return {{"matchLabels", {{api::kLabelJob, job.metadata.name}, {api::kLabelName, api::kWorkerNameValue}}}};
}

Json AccountOf(const api::TrainingJob& job) {
  return {{"metadata", OwnedMetadata(job, api::ServiceAccountName(job.metadata.name))},
          {"automountServiceAccountToken", false}};
}

// Workers may connect to everything. They accept connections from each other, and on the metrics port from
// everywhere.
Json NetworkPolicyOf(const api::TrainingJob& job) {
  const Json peers = {{"from", Json::array({{{"podSelector", WorkersOf(job)}}})}};
  const Json metrics = {
      {"ports", Json::array({{{"port", job.spec.observability.metrics_port}, {"protocol", "TCP"}}})}};
  return {{"metadata", OwnedMetadata(job, job.metadata.name)},
          {"spec",
           {{"podSelector", WorkersOf(job)},
            {"policyTypes", Json::array({"Ingress"})},
            {"ingress", Json::array({peers, metrics})}}}};
}

// A drain may evict at once as many pods as may leave a round, but at least one, so that it always proceeds.
Json DisruptionBudgetOf(const api::TrainingJob& job) {
  const int32_t spare = job.spec.worker.replicas - job.spec.min_replicas();
  return {{"metadata", OwnedMetadata(job, job.metadata.name)},
          {"spec",
           {{"selector", WorkersOf(job)},
            {"maxUnavailable", std::max(1, spare)},
            {"unhealthyPodEvictionPolicy", "AlwaysAllow"}}}};
}

Json AutoscalerOf(const api::TrainingJob& job) {
  const Json metrics = job.spec.elastic_policy->metrics;
  Json metadata = OwnedMetadata(job, job.metadata.name);
  metadata["annotations"] = {{api::kAnnotationMetrics, StableHash(DumpJson(metrics))}};
  return {{"metadata", std::move(metadata)},
          {"spec",
           {{"scaleTargetRef",
             {{"apiVersion", api::kApiVersion}, {"kind", api::kKind}, {"name", job.metadata.name}}},
            {"minReplicas", job.spec.min_replicas()},
            {"maxReplicas", job.spec.max_replicas()},
            {"metrics", metrics}}}};
}

}  // namespace

std::string KeyOfKind(const kube::Resource& resource) {
  const std::string group(resource.group);
  return std::string(resource.plural) + "." + std::string(resource.version) + (group.empty() ? "" : ".") +
         group;
}

bool HasOwnAccount(const api::TrainingJob& job) {
  const Json& pod = job.spec.worker.pod_template;
  return job.spec.worker.create_service_account && StringAt(pod, {"spec", "serviceAccountName"}).empty() &&
         StringAt(pod, {"spec", "serviceAccount"}).empty();
}

std::vector<OwnedObject> DesiredOwnedObjects(const api::TrainingJob& job, const ClusterSettings& settings) {
  std::vector<OwnedObject> objects = {{kube::kServices, DesiredService(job)},
                                      {kube::kConfigMaps, DesiredConfigMap(job, settings)}};
  if (HasOwnAccount(job)) objects.push_back({kServiceAccounts, AccountOf(job)});
  if (job.spec.network && job.spec.network->network_policy == api::NetworkPolicy::kIsolate) {
    objects.push_back({kNetworkPolicies, NetworkPolicyOf(job)});
  }
  if (job.spec.scheduling_policy.pod_disruption_budget) {
    objects.push_back({kDisruptionBudgets, DisruptionBudgetOf(job)});
  }
  if (job.spec.elastic_policy && !job.spec.elastic_policy->metrics.empty()) {
    objects.push_back({kAutoscalers, AutoscalerOf(job)});
  }
  return objects;
}

bool IsAsDesired(const OwnedObject& desired, const Json& actual) {
  Json wanted = desired.object;
  // The API server normalises quantities, so the annotation shows whether they are ours.
  if (desired.resource == kAutoscalers) wanted["spec"].erase("metrics");
  // The cluster may change the IP families later; our value matters only at creation.
  if (desired.resource == kube::kServices) wanted["spec"].erase("ipFamilyPolicy");
  return Covers(actual, wanted);
}

}  // namespace lockstep::reconcile

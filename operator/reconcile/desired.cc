#include "operator/reconcile/desired.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/common/api/names.h"

namespace lockstep::reconcile {
namespace {

const Json* LimitsOf(const api::WorkerSpec& worker) {
  const Json* containers = FindJson(worker.pod_template, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array()) return nullptr;
  for (const Json& container : *containers) {
    if (StringAt(container, {"name"}) == worker.container_name)
      return FindJson(container, {"resources", "limits"});
  }
  return nullptr;
}

// A Kubernetes quantity of whole devices or CPUs: "4", 4, "2500m". Rounded down.
int CountFromQuantity(const Json& quantity) {
  if (quantity.is_number()) return static_cast<int>(quantity.get<double>());
  if (!quantity.is_string()) return 0;
  const auto text = quantity.get<std::string>();
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return static_cast<int>(*end == 'm' ? number / 1000 : number);
}

int LimitOf(const api::WorkerSpec& worker, std::string_view suffix) {
  const Json* limits = LimitsOf(worker);
  if (limits == nullptr || !limits->is_object()) return 0;
  for (const auto& [name, quantity] : limits->items()) {
    if (name.ends_with(suffix)) return CountFromQuantity(quantity);
  }
  return 0;
}

}  // namespace

int NprocOf(const api::TrainingJobSpec& spec) {
  switch (spec.nproc_per_node.mode) {
    case api::NprocMode::kCount: return spec.nproc_per_node.count;
    case api::NprocMode::kCpu: return std::max(1, LimitOf(spec.worker, "cpu"));
    default: return std::max(1, LimitOf(spec.worker, ".com/gpu"));
  }
}

Json OwnedMetadata(const api::TrainingJob& job, const std::string& name) {
  return {{"name", name},
          {"namespace", job.metadata.namespace_name},
          {"labels", {{api::kLabelJob, job.metadata.name}, {api::kLabelManagedBy, api::kManagedByValue}}},
          {"ownerReferences", Json::array({{{"apiVersion", api::kApiVersion},
                                            {"kind", api::kKind},
                                            {"name", job.metadata.name},
                                            {"uid", job.metadata.uid},
                                            {"controller", true},
                                            {"blockOwnerDeletion", true}}})}};
}

Json DesiredService(const api::TrainingJob& job) {
  return {{"metadata", OwnedMetadata(job, api::ServiceName(job.metadata.name))},
          {"spec",
           {{"clusterIP", "None"},
            // A worker must find its peers before any of them is ready.
            {"publishNotReadyAddresses", true},
            {"selector", {{api::kLabelJob, job.metadata.name}, {api::kLabelName, api::kWorkerNameValue}}},
            {"ports", Json::array({{{"name", "metrics"},
                                    {"port", job.spec.observability.metrics_port},
                                    {"protocol", "TCP"},
                                    {"targetPort", job.spec.observability.metrics_port}}})}}}};
}

protocol::WorkerConfig DesiredWorkerConfig(const api::TrainingJob& job, const ClusterSettings& settings) {
  const api::TrainingJobSpec& spec = job.spec;
  protocol::WorkerConfig config;
  config.job = {job.metadata.namespace_name, job.metadata.name, job.metadata.uid};
  config.rendezvous = {
      .url = settings.rendezvous_url,
      .ca_file = settings.ca_pem.empty() ? "" : std::string("/etc/lockstep/") + kCaKey,
      .heartbeat_interval_seconds = static_cast<double>(spec.rendezvous.heartbeat_interval_seconds),
      .heartbeat_timeout_seconds = static_cast<double>(spec.rendezvous.heartbeat_timeout_seconds),
      .join_timeout_seconds = static_cast<double>(spec.rendezvous.join_timeout_seconds)};
  config.nproc = NprocOf(spec);
  config.metrics_port = spec.observability.metrics_port;
  config.grace_period_seconds =
      spec.checkpoint ? spec.checkpoint->grace_period_seconds
                      : static_cast<double>(
                            IntAt(spec.worker.pod_template, {"spec", "terminationGracePeriodSeconds"}, 30));
  config.in_place_limit = spec.failure_policy.in_place_limit;
  if (spec.training) config.training = api::TrainingSpecToJson(*spec.training);
  if (spec.checkpoint) config.checkpoint = api::CheckpointSpecToJson(*spec.checkpoint);
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

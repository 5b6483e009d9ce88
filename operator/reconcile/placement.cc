#include "operator/reconcile/placement.h"

#include "runtime/common/api/names.h"

namespace lockstep::reconcile {
namespace {

constexpr int kHighestWeight = 100;

}  // namespace

void KeepTogether(Json& pod_spec, const api::TrainingJob& job) {
  const auto& topology = job.spec.scheduling_policy.topology;
  if (!topology) return;
  const Json near = {
      {"topologyKey", topology->key},
      {"labelSelector",
       {{"matchLabels", {{api::kLabelJob, job.metadata.name}, {api::kLabelName, api::kWorkerNameValue}}}}}};
  const bool required = topology->mode == api::TopologyMode::kRequired;
  Json& terms =
      pod_spec["affinity"]["podAffinity"][required ? "requiredDuringSchedulingIgnoredDuringExecution"
                                                   : "preferredDuringSchedulingIgnoredDuringExecution"];
  if (!terms.is_array()) terms = Json::array();
  terms.push_back(required ? near : Json{{"weight", kHighestWeight}, {"podAffinityTerm", near}});
}

}  // namespace lockstep::reconcile

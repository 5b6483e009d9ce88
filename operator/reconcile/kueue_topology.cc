#include "operator/reconcile/kueue_topology.h"

#include <string>

#include "operator/reconcile/desired_pod.h"
#include "runtime/common/api/kueue.h"
#include "runtime/common/api/names.h"

namespace lockstep::reconcile {
namespace {

using api::AnnotationOf;

constexpr const char* kGate = "kueue.x-k8s.io/topology";

}  // namespace

Json TopologyRequestOf(const Json& pod_template) {
  Json request = {{"podIndexLabel", api::kLabelSlot}};
  const std::string required = AnnotationOf(pod_template, api::kAnnotationRequiredTopology);
  const std::string preferred = AnnotationOf(pod_template, api::kAnnotationPreferredTopology);
  const std::string unconstrained = AnnotationOf(pod_template, api::kAnnotationUnconstrainedTopology);
  if (!required.empty()) request["required"] = required;
  if (!preferred.empty()) request["preferred"] = preferred;
  if (!unconstrained.empty()) request["unconstrained"] = unconstrained == "true";
  if (const auto size = api::SliceSizeOf(pod_template)) {
    request["podSetSliceRequiredTopology"] = AnnotationOf(pod_template, api::kAnnotationSliceTopology);
    request["podSetSliceSize"] = *size;
  }
  return request;
}

// Kueue finds such pods by one of three annotations.
void AwaitPlace(Json& pod) {
  ListIn(pod["spec"], "schedulingGates").push_back({{"name", kGate}});
  if (AnnotationOf(pod, api::kAnnotationRequiredTopology).empty() &&
      AnnotationOf(pod, api::kAnnotationPreferredTopology).empty()) {
    pod["metadata"]["annotations"][std::string(api::kAnnotationUnconstrainedTopology)] = "true";
  }
}

}  // namespace lockstep::reconcile

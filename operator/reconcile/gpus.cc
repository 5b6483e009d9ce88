#include "operator/reconcile/gpus.h"

#include "operator/reconcile/decision.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/api/container_resources.h"

namespace lockstep::reconcile {
namespace {

bool Holds(const Pod& pod) { return pod.IsActive() && !pod.node.empty(); }

bool WantsPods(const Decision& decision) {
  const bool queues = decision.mode == Mode::kSuspend && decision.reason != api::reason::kSuspendRequested;
  return decision.mode == Mode::kRun || queues;
}

}  // namespace

GpuCount CountGpus(const Observed& observed, const PodGroups& groups, const Decision& decision) {
  GpuCount count;
  for (const Pod& pod : observed.pods) count.held += Holds(pod) ? pod.gpus : 0;
  if (!WantsPods(decision)) return count;
  const int each = api::GpusOfPod(observed.job.spec.worker.pod_template);
  for (int32_t slot = 0; slot < observed.job.spec.pod_count(); ++slot) {
    if (IsGivenUp(observed.job, slot)) continue;
    const auto pod = groups.slots.find(slot);
    if (pod == groups.slots.end() || !Holds(pod->second)) count.waiting += each;
  }
  return count;
}

}  // namespace lockstep::reconcile

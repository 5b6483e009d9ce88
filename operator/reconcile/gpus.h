#pragma once
// How many GPUs a job has and how many it waits for: told in its metrics. Pure.

#include "operator/reconcile/observed.h"
#include "operator/reconcile/pods.h"

namespace lockstep::reconcile {

struct Decision;

struct GpuCount {
  int held = 0;     // by pods that have a node and have not ended
  int waiting = 0;  // for pods that the job wants and that have no node, those that queue among them
};

[[nodiscard]] GpuCount CountGpus(const Observed& observed, const PodGroups& groups, const Decision& decision);

}  // namespace lockstep::reconcile

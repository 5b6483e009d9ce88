#pragma once
// How many GPUs a job holds and how many it waits for, for its metrics. Pure.

#include "operator/reconcile/observed.h"
#include "operator/reconcile/pods.h"

namespace lockstep::reconcile {

struct Decision;

struct GpuCount {
  int held = 0;     // of pods that have a node and have not ended
  int waiting = 0;  // of wanted pods without a node, including queued ones
};

[[nodiscard]] GpuCount CountGpus(const Observed& observed, const PodGroups& groups, const Decision& decision);

}  // namespace lockstep::reconcile

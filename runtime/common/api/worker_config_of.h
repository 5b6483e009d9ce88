#pragma once
// The configuration document of a job's workers, from the resource; used by the operator and by `lockstep
// run`. Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::api {

// Rank processes per pod: n; gpu = the trainer container's GPU limit; cpu = its CPU limit, rounded down, at
// least 1; auto = the GPU limit, else 1, and 1 with strategies where one process takes all devices.
[[nodiscard]] int RanksPerPod(const TrainingJobSpec& spec);

// One process has all GPUs of the pod.
[[nodiscard]] bool TakesAllDevices(const TrainingJobSpec& spec);

// Everything except rendezvous.url and rendezvous.ca_file, which depend on the host.
[[nodiscard]] protocol::WorkerConfig WorkerConfigOf(const TrainingJob& job);

}  // namespace lockstep::api

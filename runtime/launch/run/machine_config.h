#pragma once
// Interprets a manifest on a machine that is one replica. Pure.

#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/launch/run/machines.h"

namespace lockstep::launch {

// The configuration of a pod with the devices and processors that Slurm assigned, or, if Slurm does not say,
// with those of the trainer container.
[[nodiscard]] protocol::WorkerConfig WorkerConfigOn(const Machines& machines, const api::TrainingJob& job);

// The identity of the job in the messages of all machines. Machine 0 chooses the uid.
[[nodiscard]] protocol::JobIdentity LocalIdentity(const std::string& name, const std::string& uid);

// Equal on all machines that run the same manifest.
[[nodiscard]] std::string ManifestHash(const api::TrainingJob& job);

}  // namespace lockstep::launch

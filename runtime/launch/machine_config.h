#pragma once
// What a manifest means on a machine that is a replica of its own. Pure.

#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/launch/machines.h"

namespace lockstep::launch {

// As a pod with the devices and processors that Slurm gave; where it does not say, with those of the trainer
// container.
[[nodiscard]] protocol::WorkerConfig WorkerConfigOn(const Machines& machines, const api::TrainingJob& job);

// How the messages of all machines name the job. Machine 0 chooses the uid.
[[nodiscard]] protocol::JobIdentity LocalIdentity(const std::string& name, const std::string& uid);

// The same on all machines that run the same.
[[nodiscard]] std::string ManifestHash(const api::TrainingJob& job);

}  // namespace lockstep::launch

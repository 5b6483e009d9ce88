#include "runtime/launch/run/machine_config.h"

#include <algorithm>

#include "runtime/common/api/program_of.h"
#include "runtime/common/api/worker_config_of.h"
#include "runtime/common/base/strings.h"

namespace lockstep::launch {

protocol::WorkerConfig WorkerConfigOn(const Machines& machines, const api::TrainingJob& job) {
  protocol::WorkerConfig config = api::WorkerConfigOf(job);
  config.requested_gpus = machines.gpus.value_or(config.requested_gpus);
  const api::NprocMode mode = job.spec.nproc_per_node.mode;
  if (mode == api::NprocMode::kAuto && machines.gpus && !api::TakesAllDevices(job.spec))
    config.nproc = std::max(1, *machines.gpus);
  if (mode == api::NprocMode::kCpu && machines.processors) config.nproc = std::max(1, *machines.processors);
  return config;
}

protocol::JobIdentity LocalIdentity(const std::string& name, const std::string& uid) {
  return {"local", name, uid};
}

std::string ManifestHash(const api::TrainingJob& job) {
  const api::TrainingJobSpec& spec = job.spec;
  const std::vector<std::string> program =
      spec.training ? std::vector<std::string>() : api::ProgramStartOf(spec.worker, {}).words;
  protocol::WorkerConfig config = api::WorkerConfigOf(job);
  if (config.training.contains("data"))
    config.training["data"].erase("cache");  // a folder of the individual machine
  const Json all = {WorkerConfigToJson(config), program,
                    spec.worker.replicas,       spec.standby_replicas,
                    spec.min_replicas(),        spec.max_replicas()};
  return StableHash(all.dump());
}

}  // namespace lockstep::launch

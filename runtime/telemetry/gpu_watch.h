#pragma once
// Keeps a pod's GPU metrics up to date, on a thread of its own: neither a step nor a heartbeat waits for a
// driver that is slow. Its destructor waits for a reading under way.

#include <string>
#include <thread>

#include "runtime/telemetry/gpu_reader.h"
#include "runtime/telemetry/training_metrics.h"

namespace lockstep::telemetry {

class GpuWatch {
 public:
  // `metrics` must outlive it. Where there is no GPU to watch: one line in the log, and nothing more.
  GpuWatch(TrainingMetrics& metrics, std::string library, GpuSelection selection);

 private:
  std::jthread thread_;
};

}  // namespace lockstep::telemetry

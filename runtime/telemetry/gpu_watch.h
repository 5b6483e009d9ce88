#pragma once
// Updates a pod's GPU metrics on a separate thread, so that no step and no heartbeat waits for a slow driver.
// The destructor waits for a reading in progress.

#include <string>
#include <thread>

#include "runtime/telemetry/gpu_reader.h"
#include "runtime/telemetry/training_metrics.h"

namespace lockstep::telemetry {

class GpuWatch {
 public:
  // `metrics` must outlive it. Without a GPU it logs one line and does nothing.
  GpuWatch(TrainingMetrics& metrics, std::string library, GpuSelection selection);

 private:
  std::jthread thread_;
};

}  // namespace lockstep::telemetry

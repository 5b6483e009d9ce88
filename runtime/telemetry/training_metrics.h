#pragma once
// The metrics of a worker pod: converts the ranks' messages to Prometheus families. The supervisor owns it,
// so a rank's death loses no counter. Any thread.

#include <memory>
#include <vector>

#include "runtime/common/http/server.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/telemetry/gpu_reader.h"

namespace lockstep::telemetry {

class TrainingMetrics {
 public:
  // `slot`: the number of the pod, the label `replica`.
  TrainingMetrics(const protocol::WorkerConfig& config, int slot);
  ~TrainingMetrics();

  void Observe(int local_rank, const protocol::FromRank& message);
  // Sets the global rank of a local rank in the new round. A pod that no longer has rank 0, which evaluates, removes
  // its evaluation.
  void SetPlace(int local_rank, int rank, int world_size);
  // `checkpoint_bytes`: in addition to the others; 0: it keeps none in memory.
  void SetMemory(int local_rank, double resident_bytes, double checkpoint_bytes);
  void CountHang(int local_rank);
  void Observe(const std::vector<GpuReading>& gpus);
  [[nodiscard]] http::Response Scrape() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::telemetry

#pragma once
// The metrics of a worker pod: converts the ranks' messages to Prometheus families. The supervisor owns it,
// so a rank's death loses no counter. Any thread.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/common/http/server.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/telemetry/gpu_reader.h"

namespace lockstep::telemetry {

class TrainingMetrics {
 public:
  // `slot` distinguishes the pods of a job in the rank label before they have ranks.
  TrainingMetrics(const protocol::WorkerConfig& config, int slot);
  ~TrainingMetrics();

  void Observe(int local_rank, const protocol::FromRank& message);
  // Sets a local rank's position in the new round. A pod that no longer has rank 0, which evaluates, removes
  // its evaluation.
  void SetPlace(int local_rank, int rank, int world_size);
  void SetMemory(int local_rank, double bytes);
  void CountHang(int local_rank);
  void Observe(const std::vector<GpuReading>& gpus);
  [[nodiscard]] http::Response Scrape() const;

 private:
  using Labels = std::map<std::string, std::string>;
  [[nodiscard]] Labels RankLabels(int local_rank) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::telemetry

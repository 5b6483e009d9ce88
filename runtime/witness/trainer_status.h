#pragma once
// The status that a training framework posts by itself where KUBEFLOW_TRAINER_SERVER_URL is set: at most every 5 s, by
// the process of rank 0. transformers does so since 5.23 (KubeflowCallback, also with `report_to="none"`). The protocol
// is that of Kubeflow Trainer, KEP-2779:
//
//   {"trainerStatus": {"metrics": [{"name": "current_step", "value": "120"}, {"name": "loss", "value": "2.1"}, …], …}}

#include <cstdint>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::witness {

// Zero where the status names no value.
struct TrainerStatus {
  int64_t step = 0;
  int64_t total_steps = 0;
  double epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
};

// Other metrics, and values that are not finite numbers, are ignored.
[[nodiscard]] Result<TrainerStatus> ParseTrainerStatus(const std::string& body);

}  // namespace lockstep::witness

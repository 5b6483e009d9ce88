#pragma once
// Which of a machine's GPUs a pod's ranks use, for the metrics of those: lockstep-rank opens them by the same
// rule (runtime/main.cc, runtime/cuda). Pure.

#include <optional>
#include <string>

#include "runtime/common/protocol/worker_config.h"
#include "runtime/telemetry/gpu_reader.h"

namespace lockstep::launch {

// `visible`: CUDA_VISIBLE_DEVICES, absent where it is not set. `most` is 0 where the ranks use none.
[[nodiscard]] telemetry::GpuSelection GpusOf(const protocol::WorkerConfig& config, bool is_program,
                                             std::optional<std::string> visible);

}  // namespace lockstep::launch

#pragma once
// Which of a machine's GPUs a pod's ranks use, for their metrics. lockstep-rank opens GPUs by the same rule
// (runtime/main.cc, runtime/cuda). Pure.

#include <optional>
#include <string>

#include "runtime/common/protocol/worker_config.h"
#include "runtime/telemetry/gpu_reader.h"

namespace lockstep::launch {

// `visible` is CUDA_VISIBLE_DEVICES, or absent if it is not set. `most` in the result is 0 if the ranks use
// no GPU.
[[nodiscard]] telemetry::GpuSelection GpusOf(const protocol::WorkerConfig& config, bool is_program,
                                             std::optional<std::string> visible);

}  // namespace lockstep::launch

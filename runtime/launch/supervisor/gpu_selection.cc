#include "runtime/launch/supervisor/gpu_selection.h"

#include <limits>
#include <utility>

#include "runtime/common/api/training_spec.h"

namespace lockstep::launch {
namespace {

std::size_t MostOf(const protocol::WorkerConfig& config, bool is_program) {
  if (config.requested_gpus == 0) return 0;
  // How a user's program distributes its GPUs over ranks is unknown.
  if (is_program) return static_cast<std::size_t>(config.requested_gpus);
  if (config.training.value("determinism", "") == api::NameOf(api::Determinism::kWorld))
    return 0;  // computed on the CPU
  const auto strategy = EnumFromName<api::Strategy>(config.training.value("strategy", ""));
  if (strategy && api::TakesAllDevices(*strategy)) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(config.nproc);
}

}  // namespace

telemetry::GpuSelection GpusOf(const protocol::WorkerConfig& config, bool is_program,
                               std::optional<std::string> visible) {
  return {.visible = std::move(visible),
          .most = MostOf(config, is_program),
          .ranks = static_cast<std::size_t>(config.nproc)};
}

}  // namespace lockstep::launch

#include "runtime/telemetry/gpu_watch.h"

#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/common/base/queue.h"

namespace lockstep::telemetry {
namespace {

using namespace std::chrono_literals;

// Shorter than Prometheus' usual 15 s, so that each scrape finds new values; the driver updates the
// utilization once or a few times a second.
constexpr auto kInterval = 5s;

}  // namespace

GpuWatch::GpuWatch(TrainingMetrics& metrics, std::string library, GpuSelection selection)
    : thread_(
          [&metrics, library = std::move(library), selection = std::move(selection)](std::stop_token stop) {
            const auto gpus = GpuReader::Open(library, selection);
            if (!gpus.ok()) return log::Info("no metrics of GPUs", {{"reason", gpus.error().message}});
            Queue<int> never;
            while (!stop.stop_requested()) {
              metrics.Observe((*gpus)->Read());
              (void)never.PopUntil(std::chrono::steady_clock::now() + kInterval, stop);
            }
          }) {}

}  // namespace lockstep::telemetry

#include "operator/telemetry/scaling_series.h"

#include <algorithm>

#include "runtime/common/api/scaling_advice.h"

namespace lockstep::telemetry {

ScalingSeries::ScalingSeries(prometheus::Registry& registry)
    : samples_per_second_(prometheus::BuildGauge()
                              .Name("lockstep_job_scaling_samples_per_second")
                              .Help("Samples of all ranks together per second, by the number of ranks.")
                              .Register(registry)),
      efficiency_(
          prometheus::BuildGauge()
              .Name("lockstep_job_scaling_efficiency_ratio")
              .Help("Samples per second and rank, divided by those with the smallest measured world size.")
              .Register(registry)) {}

void ScalingSeries::Set(const api::TrainingJob& job, const std::vector<api::ScalingRecord>& records) {
  const std::vector<api::MeasuredSize> measured = api::AdviceFrom(records).sizes;
  Sizes& sizes = jobs_[job.metadata.uid];
  std::erase_if(sizes, [&](const auto& entry) {
    const bool is_gone = std::none_of(measured.begin(), measured.end(), [&](const api::MeasuredSize& size) {
      return size.record.world_size == entry.first;
    });
    if (is_gone) Remove(entry.second);
    return is_gone;
  });
  for (const api::MeasuredSize& size : measured) {
    const auto [found, is_new] = sizes.try_emplace(size.record.world_size);
    if (is_new) found->second = Add(job, size.record.world_size);
    found->second.samples_per_second->Set(size.record.samples_per_second);
    found->second.efficiency->Set(size.efficiency);
  }
}

void ScalingSeries::Remove(const std::string& uid) {
  const auto found = jobs_.find(uid);
  if (found == jobs_.end()) return;
  for (const auto& [world_size, size] : found->second) Remove(size);
  jobs_.erase(found);
}

ScalingSeries::Size ScalingSeries::Add(const api::TrainingJob& job, int32_t world_size) {
  const prometheus::Labels labels = {{"namespace", job.metadata.namespace_name},
                                     {"job_name", job.metadata.name},
                                     {"world_size", std::to_string(world_size)}};
  return {&samples_per_second_.Add(labels), &efficiency_.Add(labels)};
}

void ScalingSeries::Remove(const Size& size) {
  samples_per_second_.Remove(size.samples_per_second);
  efficiency_.Remove(size.efficiency);
}

}  // namespace lockstep::telemetry

#include "runtime/train/memory_report.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/common/api/validate_training.h"
#include "runtime/common/base/strings.h"
#include "runtime/train/make_training_state.h"

namespace lockstep::train {
namespace {

constexpr std::array kCompared = {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kFsdp,
                                  api::Strategy::kPipeline};

std::vector<api::Strategy> StrategiesFor(const api::TrainingSpec& spec) {
  std::vector<api::Strategy> strategies = {spec.strategy};
  std::copy_if(kCompared.begin(), kCompared.end(), std::back_inserter(strategies),
               [&](api::Strategy strategy) { return strategy != spec.strategy; });
  return strategies;
}

void CountElements(const TrainingState& state, StateMemoryReport& report) {
  report.trained_parameters = report.other_elements = 0;
  for (const NamedTensor& parameter : state.parameters)
    (parameter.tensor.requires_grad() ? report.trained_parameters : report.other_elements) +=
        parameter.tensor.numel();
  for (const NamedTensor& buffer : state.buffers) report.other_elements += buffer.tensor.numel();
}

}  // namespace

Result<StateMemoryReport> ReportMemory(const api::TrainingSpec& spec, const ModelInput& input,
                                       std::span<const int> worlds, const PodShape& pod) {
  StateMemoryReport report;
  for (const api::Strategy strategy : StrategiesFor(spec)) {
    const bool is_own = strategy == spec.strategy;
    api::TrainingSpec with = spec;
    with.strategy = strategy;
    if (!is_own) with.sync = {};  // how localsgd and async average
    const api::Violations violations = api::ValidateTraining(with, "spec.training");
    if (!violations.empty() && !is_own) {
      report.left_out.push_back({std::string(api::NameOf(strategy)), Join(violations, "; ")});
      continue;
    }
    // How modelparallel places layers does not depend on what the devices are.
    const int devices = strategy == api::Strategy::kModelparallel ? pod.devices : 1;
    const std::vector<at::Device> stand_ins(static_cast<std::size_t>(devices), at::kCPU);
    const auto state = MakeTrainingState(with, input, stand_ins, pod.ranks);
    if (!state.ok() && is_own) return state.error();
    if (!state.ok()) {
      report.left_out.push_back({std::string(api::NameOf(strategy)), state.error().message});
      continue;
    }
    if (is_own) CountElements(**state, report);
    for (const int world : worlds)
      report.sizes.push_back({std::string(api::NameOf(strategy)), world, (*state)->Memory(world)});
  }
  return report;
}

}  // namespace lockstep::train

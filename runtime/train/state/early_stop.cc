#include "runtime/train/state/early_stop.h"

#include <cmath>
#include <limits>

#include "runtime/common/base/strings.h"

namespace lockstep::train {
namespace {

// The improvement of `value` over `other`.
double Gain(api::EarlyStopMetric metric, double value, double other) {
  return metric == api::EarlyStopMetric::kAccuracy ? value - other : other - value;
}

double Finite(api::EarlyStopMetric metric, double value) {
  constexpr double kMost = std::numeric_limits<double>::max();
  if (std::isfinite(value)) return value;
  return metric == api::EarlyStopMetric::kAccuracy ? 0 : kMost;
}

}  // namespace

EvaluationRecord WithEvaluation(EvaluationRecord record, const api::EarlyStopSpec& spec, int64_t step,
                                double loss, double accuracy) {
  const bool by_accuracy = spec.metric == api::EarlyStopMetric::kAccuracy;
  const double value = Finite(spec.metric, by_accuracy ? accuracy : loss);
  const double gain = Gain(spec.metric, value, record.best);
  const bool is_first = record.step < 0;
  record.step = step;
  record.newest = value;
  if (is_first || gain > spec.min_delta) {
    record.best = value;
    record.without_improvement = 0;
  } else {
    ++record.without_improvement;
  }
  return record;
}

std::optional<std::string> ReasonToStop(const EvaluationRecord& record, const api::EarlyStopSpec& spec) {
  if (record.step < 0) return std::nullopt;
  const std::string metric = std::string(NameOf(spec.metric)) + " ";
  if (spec.target.has_value() && Gain(spec.metric, record.newest, *spec.target) >= 0)
    return metric + FormatNumber(record.newest) + " meets the target " + FormatNumber(*spec.target);
  if (spec.patience.has_value() && record.without_improvement >= *spec.patience) {
    return "no better than " + metric + FormatNumber(record.best) + " in " +
           std::to_string(record.without_improvement) + " evaluations";
  }
  return std::nullopt;
}

}  // namespace lockstep::train

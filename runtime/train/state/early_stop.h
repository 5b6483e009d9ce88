#pragma once
// Decides when training has reached its target or no longer improves (spec.training.earlyStop). Pure.

#include <optional>
#include <string>

#include "runtime/checkpoint/evaluation_record.h"
#include "runtime/common/api/training_spec.h"

namespace lockstep::train {

using checkpoint::EvaluationRecord;

// Adds the evaluation after `step` to the record. A value that is not finite counts as no improvement.
[[nodiscard]] EvaluationRecord WithEvaluation(EvaluationRecord record, const api::EarlyStopSpec& spec,
                                              int64_t step, double loss, double accuracy);

// Returns the reason to end the training now, for the log and the status, or nothing to continue.
[[nodiscard]] std::optional<std::string> ReasonToStop(const EvaluationRecord& record,
                                                      const api::EarlyStopSpec& spec);

}  // namespace lockstep::train

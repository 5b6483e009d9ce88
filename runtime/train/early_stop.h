#pragma once
// When a training is good enough, or gets no better, by spec.training.earlyStop. Pure.

#include <optional>
#include <string>

#include "runtime/checkpoint/evaluation_record.h"
#include "runtime/common/api/training_spec.h"

namespace lockstep::train {

using checkpoint::EvaluationRecord;

// The record with one more evaluation, of `step`. What is not finite is no improvement.
[[nodiscard]] EvaluationRecord WithEvaluation(EvaluationRecord record, const api::EarlyStopSpec& spec,
                                              int64_t step, double loss, double accuracy);

// Why to end the training now, for people; nothing: train on.
[[nodiscard]] std::optional<std::string> ReasonToStop(const EvaluationRecord& record,
                                                      const api::EarlyStopSpec& spec);

}  // namespace lockstep::train

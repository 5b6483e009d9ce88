#include "runtime/common/protocol/train_phase.h"

namespace lockstep::protocol {
namespace {

bool IsBetweenSteps(std::string_view phase) {
  return phase == NameOf(TrainPhase::kSync) || phase == NameOf(TrainPhase::kEvaluate) ||
         phase == NameOf(TrainPhase::kCheckpoint);
}

}  // namespace

double SecondsOf(const PhaseSeconds& seconds, TrainPhase phase) {
  const auto found = seconds.find(std::string(NameOf(phase)));
  return found == seconds.end() ? 0 : found->second;
}

double ComputeSeconds(const PhaseSeconds& seconds) {
  double sum = 0;
  for (const TrainPhase phase :
       {TrainPhase::kData, TrainPhase::kForward, TrainPhase::kBackward, TrainPhase::kGraph})
    sum += SecondsOf(seconds, phase);
  return sum;
}

double StepSeconds(const PhaseSeconds& seconds) {
  double sum = 0;
  for (const auto& [phase, spent] : seconds) sum += IsBetweenSteps(phase) ? 0 : spent;
  return sum;
}

}  // namespace lockstep::protocol

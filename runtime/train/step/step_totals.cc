#include "runtime/train/step/step_totals.h"

namespace lockstep::train {

StepTotals StepTotals::Of(int64_t count, int64_t corrupt, const Requests& requests) {
  return {.count = count,
          .corrupt = corrupt,
          .yielding = requests.yield ? 1 : 0,
          .stopping = requests.stop ? 1 : 0,
          .saving = requests.save ? 1 : 0,
          .profile = requests.profile};
}

StepTotals& StepTotals::operator+=(const StepTotals& other) {
  count += other.count;
  corrupt += other.corrupt;
  yielding += other.yielding;
  stopping += other.stopping;
  saving += other.saving;
  profile.first += other.profile.first;
  profile.last += other.profile.last;
  return *this;
}

}  // namespace lockstep::train

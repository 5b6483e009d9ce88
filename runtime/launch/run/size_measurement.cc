#include "runtime/launch/run/size_measurement.h"

namespace lockstep::launch {
namespace {

constexpr int64_t kWarmUpSteps = 5;
// Thousands of steps of a small model take a moment, in which anything else on the machine counts too much.
constexpr double kFewestSeconds = 2;

}  // namespace

void SizeMeasurement::Take(const rendezvous::RendezvousView& view) {
  for (const rendezvous::RoundChange& change : view.changes) {
    // A collective often fails before the death of a rank is observed, and does not say who died.
    const bool is_known = !change.departures.empty() || change.is_repaired;
    if (change.cause.has_value() && is_known && failure_.empty()) failure_ = change.reason;
  }
  const rendezvous::MeasuredSteps& measured = view.measured_steps;
  if (view.world_size != world_size_ || measured.steps < kWarmUpSteps) return begin_.reset();
  // The members may have formed their round again.
  if (!begin_.has_value() || measured.steps < newest_.steps) begin_ = measured;
  newest_ = measured;
}

bool SizeMeasurement::IsComplete() const {
  const rendezvous::MeasuredSteps done = measured();
  return done.steps >= steps_ && done.seconds >= kFewestSeconds;
}

rendezvous::MeasuredSteps SizeMeasurement::measured() const {
  if (!begin_.has_value()) return {};
  return {.steps = newest_.steps - begin_->steps,
          .samples = newest_.samples - begin_->samples,
          .seconds = newest_.seconds - begin_->seconds,
          .communication_seconds = newest_.communication_seconds - begin_->communication_seconds,
          .data_seconds = newest_.data_seconds - begin_->data_seconds};
}

}  // namespace lockstep::launch

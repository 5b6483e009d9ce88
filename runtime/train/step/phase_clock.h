#pragma once
// Measures how long the process has spent in each phase since it started. Phases are also ranges in a
// profile. Step thread.

#include <string>
#include <utility>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/train_phase.h"
#include "runtime/train/step/trace_range.h"

namespace lockstep::train {

using protocol::TrainPhase;

class PhaseClock {
 public:
  explicit PhaseClock(const Clock& clock) : clock_(clock) {}

  void Add(TrainPhase phase, double seconds) { seconds_[std::string(NameOf(phase))] += seconds; }
  [[nodiscard]] const protocol::PhaseSeconds& seconds() const { return seconds_; }

  // Runs `call`, adds its time to `phase` and returns its result.
  template <typename Call>
  decltype(auto) Time(TrainPhase phase, Call&& call) {
    const Span span(*this, phase);
    return std::forward<Call>(call)();
  }

 private:
  class Span {
   public:
    Span(PhaseClock& owner, TrainPhase phase)
        : owner_(owner), phase_(phase), range_(std::string(NameOf(phase))), start_(owner.clock_.Steady()) {}
    ~Span() { owner_.Add(phase_, Seconds(owner_.clock_.Steady() - start_).count()); }

   private:
    PhaseClock& owner_;
    const TrainPhase phase_;
    const TraceRange range_;
    const SteadyTime start_;
  };

  const Clock& clock_;
  protocol::PhaseSeconds seconds_;
};

}  // namespace lockstep::train

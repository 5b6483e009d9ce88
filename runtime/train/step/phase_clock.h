#pragma once
// Measures how long the process has spent in each phase since it started. Phases are also ranges in a
// profile. Step thread.

#include <map>
#include <string>
#include <utility>

#include "runtime/common/base/clock.h"
#include "runtime/train/step/trace_range.h"

namespace lockstep::train {

class PhaseClock {
 public:
  explicit PhaseClock(const Clock& clock) : clock_(clock) {}

  void Add(const std::string& phase, double seconds) { seconds_[phase] += seconds; }
  [[nodiscard]] const std::map<std::string, double>& seconds() const { return seconds_; }

  // Runs `call`, adds its time to `phase` and returns its result.
  template <typename Call>
  decltype(auto) Time(const std::string& phase, Call&& call) {
    const Span span(*this, phase);
    return std::forward<Call>(call)();
  }

 private:
  class Span {
   public:
    Span(PhaseClock& owner, const std::string& phase)
        : owner_(owner), phase_(phase), range_(phase), start_(owner.clock_.Steady()) {}
    ~Span() { owner_.Add(phase_, Seconds(owner_.clock_.Steady() - start_).count()); }

   private:
    PhaseClock& owner_;
    const std::string& phase_;
    const TraceRange range_;
    const SteadyTime start_;
  };

  const Clock& clock_;
  std::map<std::string, double> seconds_;
};

}  // namespace lockstep::train

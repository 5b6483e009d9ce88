#pragma once
// Measures the steps of a job with one world size, by what the rendezvous knows of its run. The first steps do
// not count, because they allocate memory and fill caches. Pure.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/common/rendezvous/view.h"

namespace lockstep::launch {

class SizeMeasurement {
 public:
  SizeMeasurement(int world_size, int64_t steps) : world_size_(world_size), steps_(steps) {}

  void Take(const rendezvous::RendezvousView& view);
  // At least as many steps as required, and long enough.
  [[nodiscard]] bool IsComplete() const;
  [[nodiscard]] rendezvous::MeasuredSteps measured() const;
  // Why a round ended; empty: none failed.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  const int world_size_;
  const int64_t steps_;
  std::optional<rendezvous::MeasuredSteps> begin_;  // after the steps that do not count
  rendezvous::MeasuredSteps newest_;
  std::string failure_;
};

}  // namespace lockstep::launch

#pragma once
// What the ranks add up at the end of a step, or of a window of steps, together with loss and gradients: how
// many samples counted, and what ranks request. All ranks get the same numbers after the same step, so they
// decide alike. Pure.

#include <array>
#include <cstdint>
#include <span>

#include "runtime/common/api/profile_window.h"

namespace lockstep::train {

// What this rank requests of all ranks after the step.
struct Requests {
  bool yield = false;  // leave the round
  bool stop = false;   // leave the job
  bool save = false;   // store a checkpoint
  // Later steps to record. Only rank 0 sets it; a window that ends at step 0 means none.
  api::ProfileWindow profile{};
};

struct StepTotals {
  static constexpr std::size_t kSize = 7;  // numbers

  int64_t count = 0;     // samples without corrupt records
  int64_t corrupt = 0;   // samples with corrupt records, which are left out
  int64_t yielding = 0;  // ranks that request it
  int64_t stopping = 0;
  int64_t saving = 0;
  api::ProfileWindow profile{};

  // The part of one rank.
  [[nodiscard]] static StepTotals Of(int64_t count, int64_t corrupt, const Requests& requests);
  // As they travel. A double is exact up to 2^53.
  template <typename Number>
  void CopyTo(std::span<Number> to) const {
    const std::array<int64_t, kSize> numbers = {count,  corrupt,       yielding,    stopping,
                                                saving, profile.first, profile.last};
    for (std::size_t i = 0; i < kSize; ++i) to[i] = static_cast<Number>(numbers[i]);
  }
  template <typename Number>
  [[nodiscard]] static StepTotals From(std::span<const Number> numbers) {
    const auto at = [numbers](std::size_t i) { return static_cast<int64_t>(numbers[i]); };
    return {.count = at(0),
            .corrupt = at(1),
            .yielding = at(2),
            .stopping = at(3),
            .saving = at(4),
            .profile = {.first = at(5), .last = at(6)}};
  }

  StepTotals& operator+=(const StepTotals& other);
  friend bool operator==(const StepTotals&, const StepTotals&) = default;
};

}  // namespace lockstep::train

#pragma once
// Measures how fast a round takes its steps and what they wait for, by what rank 0 reports. Pure.

#include <cstdint>
#include <optional>

#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

class Scaling {
 public:
  // The newest report of rank 0 in `round`. Ignores a report about an earlier round.
  void Take(int64_t round, const protocol::Progress& progress);
  // Empty until two reports with steps of that round have arrived.
  [[nodiscard]] MeasuredSteps MeasuredIn(int64_t round) const;

 private:
  [[nodiscard]] bool BeginsAgainWith(const protocol::Progress& progress) const;

  std::optional<protocol::Progress> entered_;  // the first report in the round
  std::optional<protocol::Progress> begin_;    // the first with a step that was completed after `entered_`
  protocol::Progress newest_;
};

}  // namespace lockstep::rendezvous

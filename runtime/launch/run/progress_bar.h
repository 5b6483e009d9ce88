#pragma once
// Shows the progress of a training on a terminal: a line per epoch with a bar, the loss, the speed and the
// remaining time. Pure; one thread.

#include <cstdint>
#include <deque>
#include <string>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"

namespace lockstep::launch {

class ProgressBar {
 public:
  // The text that overwrites the last line, without a newline, at most `columns` wide. If an epoch ended
  // since the last call, its full line comes first, with a newline.
  [[nodiscard]] std::string Draw(const protocol::Progress& progress, SteadyTime now, int columns);

 private:
  struct Mark {
    SteadyTime time;
    int64_t step;
  };
  // Estimated from the speed of the last half minute; empty if the speed is not known yet.
  [[nodiscard]] std::string TimeLeft(const protocol::Progress& progress, SteadyTime now);

  std::deque<Mark> marks_;  // oldest first
  int64_t epoch_ = 0;       // of the line drawn last, counted from 1; 0: no line was drawn
};

}  // namespace lockstep::launch

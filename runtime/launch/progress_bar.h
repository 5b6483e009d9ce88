#pragma once
// How far a training is, for a person at a terminal: a line per epoch with a bar, the loss, the speed and the
// time that is left. Pure; one thread.

#include <cstdint>
#include <deque>
#include <string>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"

namespace lockstep::launch {

class ProgressBar {
 public:
  // The line to write over the last one, without a newline, at most `columns` wide. Where an epoch ended
  // since, that one's line comes first, full, with a newline.
  [[nodiscard]] std::string Draw(const protocol::Progress& progress, SteadyTime now, int columns);

 private:
  struct Mark {
    SteadyTime time;
    int64_t step;
  };
  // By the speed of the last half minute; empty where nothing is known of it yet.
  [[nodiscard]] std::string TimeLeft(const protocol::Progress& progress, SteadyTime now);

  std::deque<Mark> marks_;  // oldest first
  int64_t epoch_ = 0;       // of the line drawn last, counted from 1; 0: none was
};

}  // namespace lockstep::launch

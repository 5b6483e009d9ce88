#pragma once
// What a rank does at the moment. Its supervisor decides by it how long the rank may be silent
// (runtime/launch/supervisor/hang_detector.h).

#include <array>
#include <string_view>

#include "runtime/common/base/enum_text.h"

namespace lockstep::protocol {

enum class RankPhase {
  kInit,     // the process starts
  kLoad,     // waits for data
  kSync,     // enters a round
  kTrain,    // steps
  kAverage,  // waits for the average of a window
  kEvaluate,
  kSnapshot,  // copies the state for a checkpoint
  kSave,      // stores the last checkpoint
  kProgram,   // a program of the user's does what nobody observes
};
[[nodiscard]] constexpr auto WordsOf(RankPhase) {
  return std::to_array<std::string_view>(
      {"init", "load", "sync", "train", "average", "evaluate", "snapshot", "save", "program"});
}

}  // namespace lockstep::protocol

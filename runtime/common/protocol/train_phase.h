#pragma once
// Where the time of training goes. Ranks report the seconds of each phase since they started, by the words
// below: they are labels of metrics, and a program or a rank of another version may report others. Pure.

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "runtime/common/base/enum_text.h"

namespace lockstep::protocol {

enum class TrainPhase {
  kData,     // waits for the next batch
  kForward,  // of a program: all of its step that is not named below
  kBackward,
  kGraph,           // forward and backward pass as a recorded graph
  kBackwardReduce,  // a backward pass that waits for other ranks inside itself
  kReduce,          // waits for a collective
  kOptimizer,
  kScript,  // what a script does between two steps
  kSync,    // enters a round
  kEvaluate,
  kCheckpoint,  // for as long as a save delays training
};
[[nodiscard]] constexpr auto WordsOf(TrainPhase) {
  return std::to_array<std::string_view>({"data", "forward", "backward", "graph", "backward_reduce", "reduce",
                                          "optimizer", "script", "sync", "evaluate", "checkpoint"});
}

using PhaseSeconds = std::map<std::string, double>;

// 0 for a phase that is not in there.
[[nodiscard]] double SecondsOf(const PhaseSeconds& seconds, TrainPhase phase);

// The part of a step's time that a rank computes without waiting for others.
[[nodiscard]] double ComputeSeconds(const PhaseSeconds& seconds);

// All that belongs to steps, also in phases that are not known here.
[[nodiscard]] double StepSeconds(const PhaseSeconds& seconds);

}  // namespace lockstep::protocol

#pragma once
// Plots the history of a training: a chart each for loss, accuracy and samples per second, if present, over
// the steps, with a vertical line where a round began. SVG that any browser shows. Pure.

#include <string>
#include <vector>

#include "runtime/common/protocol/history.h"

namespace lockstep::cli {

[[nodiscard]] std::string PlotHistory(const std::vector<protocol::HistoryRecord>& history,
                                      const std::string& title);

}  // namespace lockstep::cli

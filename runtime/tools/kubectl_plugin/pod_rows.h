#pragma once
// The worker pods of a job for display. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/command_line/text.h"
#include "runtime/tools/kubectl_plugin/rank_places.h"

namespace lockstep::kubectl_plugin {

struct PodRow {
  std::string name;
  int64_t slot = 0;
  std::string state;  // the phase, or why its container waits or has ended
  bool is_ready = false;
  std::string node;  // empty: not scheduled
};

// From a list of pods as returned by the API server.
[[nodiscard]] std::vector<PodRow> PodRowsFrom(const Json& list, const std::string& container);
// "0", "4-7", "1,5"; empty: none.
[[nodiscard]] std::string RanksText(const std::set<int64_t>& ranks);
// For programs: a list of {"name", "ranks", "state", "ready", "node"}, by rank.
[[nodiscard]] Json PodsToJson(std::vector<PodRow> pods, const RankPlaces& places);
// By rank; pods without one come last, by slot.
void SortByRank(std::vector<PodRow>& pods, const RankPlaces& places);

}  // namespace lockstep::kubectl_plugin

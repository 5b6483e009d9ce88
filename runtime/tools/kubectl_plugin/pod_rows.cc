#include "runtime/tools/kubectl_plugin/pod_rows.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>

#include "runtime/common/api/names.h"

namespace lockstep::kubectl_plugin {
namespace {

std::string StateOf(const Json& pod, const Json* container) {
  if (FindJson(pod, {"metadata", "deletionTimestamp"}) != nullptr) return "Terminating";
  if (container != nullptr) {
    for (const std::string_view kind : {"waiting", "terminated"}) {
      std::string reason = StringAt(*container, {"state", kind, "reason"});
      if (!reason.empty()) return reason;
    }
  }
  const std::string reason = StringAt(pod, {"status", "reason"});  // such as Evicted
  return reason.empty() ? StringAt(pod, {"status", "phase"}, "Unknown") : reason;
}

PodRow RowFrom(const Json& pod, const std::string& container) {
  const Json* found = nullptr;
  if (const Json* statuses = FindJson(pod, {"status", "containerStatuses"})) {
    for (const Json& status : *statuses) {
      if (StringAt(status, {"name"}) == container) found = &status;
    }
  }
  std::map<std::string, std::string> labels;
  if (const Json* given = FindJson(pod, {"metadata", "labels"})) {
    for (const auto& [key, value] : given->items()) labels[key] = value.is_string() ? value : "";
  }
  return {.name = StringAt(pod, {"metadata", "name"}),
          .slot = api::SlotFromLabels(labels).value_or(std::numeric_limits<int32_t>::max()),
          .state = command_line::OneLine(StateOf(pod, found)),
          .is_ready = found != nullptr && BoolAt(*found, {"ready"}),
          .node = StringAt(pod, {"spec", "nodeName"})};
}

}  // namespace

std::vector<PodRow> PodRowsFrom(const Json& list, const std::string& container) {
  std::vector<PodRow> rows;
  if (const Json* items = FindJson(list, {"items"})) {
    for (const Json& pod : *items) rows.push_back(RowFrom(pod, container));
  }
  std::sort(rows.begin(), rows.end(), [](const PodRow& a, const PodRow& b) { return a.slot < b.slot; });
  return rows;
}

std::string RanksText(const std::set<int64_t>& ranks) {
  std::string text;
  for (auto rank = ranks.begin(); rank != ranks.end();) {
    const int64_t first = *rank;
    int64_t last = first;
    while (++rank != ranks.end() && *rank == last + 1) last = *rank;
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
  }
  return text;
}

void SortByRank(std::vector<PodRow>& pods, const RankPlaces& places) {
  const auto place = [&](const PodRow& pod) {
    const std::set<int64_t> ranks = places.RanksOf(pod.name);
    return std::tuple(ranks.empty() ? std::numeric_limits<int64_t>::max() : *ranks.begin(), pod.slot);
  };
  std::sort(pods.begin(), pods.end(), [&](const PodRow& a, const PodRow& b) { return place(a) < place(b); });
}

Json PodsToJson(std::vector<PodRow> pods, const RankPlaces& places) {
  SortByRank(pods, places);
  Json list = Json::array();
  for (const PodRow& pod : pods) {
    list.push_back({{"name", pod.name},
                    {"ranks", places.RanksOf(pod.name)},
                    {"state", pod.state},
                    {"ready", pod.is_ready},
                    {"node", pod.node}});
  }
  return list;
}

}  // namespace lockstep::kubectl_plugin

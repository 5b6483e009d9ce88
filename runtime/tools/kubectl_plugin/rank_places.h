#pragma once
// Which pod has which rank, from the pods' logs, because ranks move between pods and no object contains that.
// A supervisor logs "rank placed" for every rank of every round; the labels on a rank's own lines
// (runtime/launch/process/log_lines.h) contain the same. Pure; one thread.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::kubectl_plugin {

struct NamedRank {
  int64_t rank = 0;
  int64_t round = 0;
  std::optional<int64_t> local_rank;  // the number of its process in the pod, if the line has it
};

// The rank that a line of a pod's log is about; nullopt: none, or none yet.
[[nodiscard]] std::optional<NamedRank> RankNamedIn(std::string_view line);

// Whether a line of the pod's log may be from this rank or from its supervisor about it, and not from or
// about another rank of the pod.
[[nodiscard]] bool MayBeOfRank(std::string_view line, int64_t rank, std::optional<int64_t> local_rank);

// "[pod/NAME/CONTAINER] line", as `kubectl logs --prefix` writes it.
struct PodLine {
  std::string pod;
  std::string_view line;
};
[[nodiscard]] std::optional<PodLine> SplitPrefix(std::string_view text);

class RankPlaces {
 public:
  void Take(const PodLine& line);

  struct Place {
    std::string pod;
    int64_t round = 0;
    std::optional<int64_t> local_rank;
  };
  // The pod of the rank in the newest round that had the rank.
  [[nodiscard]] std::optional<Place> PodOf(int64_t rank) const;
  // The ranks of a pod in the newest round of all; empty if it has no place in it.
  [[nodiscard]] std::set<int64_t> RanksOf(const std::string& pod) const;
  [[nodiscard]] int64_t newest_round() const { return newest_round_; }

 private:
  struct Held {
    int64_t round = 0;
    std::map<int64_t, std::optional<int64_t>> ranks;  // with their local ranks
  };
  std::map<std::string, Held> newest_;  // by pod: its newest round
  int64_t newest_round_ = 0;
};

}  // namespace lockstep::kubectl_plugin

#pragma once
// Which pod has which rank: from what the pods log, for ranks move between pods and no object tells of it.
// "rank placed" of a supervisor is there for every rank of every round; labels of a rank's own lines
// (runtime/launch/log_lines.h) say the same. Pure; one thread.

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
  std::optional<int64_t> local_rank;  // the number of its process in the pod, where the line has it
};

// The rank that a line of a pod's log is about; nullopt: none, or not yet one.
[[nodiscard]] std::optional<NamedRank> RankNamedIn(std::string_view line);

// Whether a line of its pod's log is a rank's own or its supervisor's: not what other ranks of that pod
// wrote, nor what is told of their processes.
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
  // Where the rank was in the newest round that had it.
  [[nodiscard]] std::optional<Place> PodOf(int64_t rank) const;
  // The ranks of a pod in the newest round of all; none for one that has no place in it.
  [[nodiscard]] std::set<int64_t> RanksOf(const std::string& pod) const;
  [[nodiscard]] int64_t newest_round() const { return newest_round_; }

 private:
  struct Held {
    int64_t round = 0;
    std::map<int64_t, std::optional<int64_t>> ranks;  // with their local ranks
  };
  std::map<std::string, Held> newest_;  // by pod: of its newest round
  int64_t newest_round_ = 0;
};

}  // namespace lockstep::kubectl_plugin

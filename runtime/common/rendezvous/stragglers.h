#pragma once
// Finds ranks of a round that are slower than the others. Compares the time that each rank computes without
// waiting; the duration of a whole step is equal for all, because each waits for the slowest. Pure; time is
// counted in steps.
//
// A window has four parts. A rank is slow in a part if it computes longer than `factor` times the median
// rank, per step *and* per sample: shares may differ by a sample, or by speed (training.balance). A rank that
// is slow in four consecutive parts becomes a straggler, and stops being one after four parts in which it was
// not slow, so that a single slow step has no effect. Evaluations and saves do not count as computing.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/settings.h"

namespace lockstep::rendezvous {

class Stragglers {
 public:
  explicit Stragglers(StragglerSettings settings) : settings_(settings) {}

  [[nodiscard]] const StragglerSettings& settings() const { return settings_; }
  [[nodiscard]] int64_t round() const { return round_; }

  // Discards everything about older rounds.
  void BeginRound(int64_t round, int world);
  // The work of ranks of the round so far. True if a rank became a straggler or stopped being one.
  bool Update(int64_t round, const std::vector<protocol::RankReport>& ranks);
  // Stragglers of this round: rank → its time divided by the median rank's when it was found.
  [[nodiscard]] const std::map<int, double>& found() const { return found_; }

 private:
  struct Work {
    std::optional<protocol::RankReport> at_begin;  // of the part
    protocol::RankReport newest;
    bool has_made_part = false;
    int parts_in_a_row = 0;  // consecutive parts that contradict its present classification
  };
  void Take(const protocol::RankReport& report);
  bool Compare();

  StragglerSettings settings_;
  int64_t round_ = 0;
  int world_ = 0;
  std::map<int, Work> ranks_;  // ranks that have reported; a world may be larger
  std::size_t made_part_ = 0;  // how many ranks have completed the part
  std::map<int, double> found_;
};

}  // namespace lockstep::rendezvous

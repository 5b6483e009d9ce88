#pragma once
// Which ranks of a round are slower than the others, by the time that each computes by itself: the time of a
// whole step is equal for all, as each waits for the slowest. Pure; time passes in steps.
//
// A window has four parts. A rank is slow in a part where it computes longer than `factor` times the median
// rank, for a step *and* for a sample: shares may differ by a sample, or by speed (training.balance). One
// that is slow in four parts in a row is a straggler, and is none any more after four that were not: one slow
// step decides nothing. Evaluations and saves are no computing.

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

  // Of an older round nothing counts any more.
  void BeginRound(int64_t round, int world);
  // What ranks of the round have done so far. True where somebody became a straggler, or ceased to be one.
  bool Heard(int64_t round, const std::vector<protocol::RankReport>& ranks);
  // Of this round: rank → how many times the median's time it took when it was found.
  [[nodiscard]] const std::map<int, double>& found() const { return found_; }

 private:
  struct Work {
    std::optional<protocol::RankReport> at_begin;  // of the part
    protocol::RankReport newest;
    bool has_made_part = false;
    int parts_in_a_row = 0;  // that speak against what it is taken for
  };
  void Take(const protocol::RankReport& report);
  bool Compare();

  StragglerSettings settings_;
  int64_t round_ = 0;
  int world_ = 0;
  std::map<int, Work> ranks_;  // that have reported: a world may be larger than what its members say
  std::size_t made_part_ = 0;  // how many
  std::map<int, double> found_;
};

}  // namespace lockstep::rendezvous

#include "runtime/common/rendezvous/stragglers.h"

#include <algorithm>
#include <utility>

namespace lockstep::rendezvous {
namespace {

constexpr int kParts = 4;

// The lower of two middle values: in a world of two, ranks are compared with the faster one.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// True if the rank has a new process: the members formed the round again, and the counters restarted.
// Differences to the earlier report would be negative or zero.
bool IsBehind(const protocol::RankReport& report, const protocol::RankReport& newest) {
  return report.steps < newest.steps || report.samples < newest.samples ||
         report.compute_seconds < newest.compute_seconds;
}

}  // namespace

void Stragglers::BeginRound(int64_t round, int world) {
  if (std::exchange(round_, round) == round) return;
  world_ = world;
  ranks_.clear();
  made_part_ = 0;
  found_.clear();
}

bool Stragglers::Update(int64_t round, const std::vector<protocol::RankReport>& ranks) {
  if (round != round_ || world_ < 2) return false;
  for (const protocol::RankReport& report : ranks) Take(report);
  return made_part_ == static_cast<std::size_t>(world_) && Compare();
}

void Stragglers::Take(const protocol::RankReport& report) {
  // A report may still be for an earlier round.
  if (report.work_round != round_ || report.rank < 0 || report.rank >= world_) return;
  Work& work = ranks_[report.rank];
  if (IsBehind(report, work.newest)) {
    made_part_ -= work.has_made_part ? 1 : 0;
    work = {.parts_in_a_row = work.parts_in_a_row};
  }
  work.newest = report;
  if (!work.at_begin.has_value()) work.at_begin = report;
  const int64_t steps = report.steps - work.at_begin->steps;
  if (work.has_made_part || steps < std::max(1, settings_.window_steps / kParts)) return;
  work.has_made_part = true;
  ++made_part_;
}

bool Stragglers::Compare() {
  std::vector<double> per_step;
  std::vector<double> per_sample;
  for (auto& [rank, work] : ranks_) {
    const double seconds = work.newest.compute_seconds - work.at_begin->compute_seconds;
    const int64_t samples = work.newest.samples - work.at_begin->samples;
    per_step.push_back(seconds / static_cast<double>(work.newest.steps - work.at_begin->steps));
    per_sample.push_back(seconds / static_cast<double>(std::max<int64_t>(1, samples)));
    work.at_begin = work.newest;
    work.has_made_part = false;
  }
  made_part_ = 0;
  const double step = Median(per_step);
  const double sample = Median(per_sample);
  bool has_changed = false;
  std::size_t i = 0;
  for (auto& [rank, work] : ranks_) {
    const double own = per_step[i];
    const bool is_slow = own > settings_.factor * step && per_sample[i] > settings_.factor * sample;
    ++i;
    int& parts = work.parts_in_a_row;
    parts = is_slow == found_.contains(rank) ? 0 : parts + 1;
    if (parts < kParts) continue;
    parts = 0;
    has_changed = true;
    if (is_slow) {
      found_[rank] = own / step;
    } else {
      found_.erase(rank);
    }
  }
  return has_changed;
}

}  // namespace lockstep::rendezvous

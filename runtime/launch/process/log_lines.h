#pragma once
// Processes what a rank writes, line by line: splits the stream of bytes, labels the lines with the rank for
// the pod's log, and keeps the newest ones for the report of its death. Pure; one thread.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"

namespace lockstep::launch {

struct OutputLine {
  std::string text;
  bool is_overwritten = false;  // by the next one, as a progress bar is

  friend bool operator==(const OutputLine&, const OutputLine&) = default;
};

// Splits bytes into lines without their newline. A line longer than kLongestLine is returned in pieces. Of lines
// that the next one overwrites, because they end with a carriage return alone, one is returned in each kPause.
class LineCutter {
 public:
  static constexpr std::size_t kLongestLine = 16'384;
  static constexpr Milliseconds kPause{5'000};

  [[nodiscard]] std::vector<OutputLine> Add(std::string_view bytes, SteadyTime now);
  // What followed the last line; nothing if that is empty.
  [[nodiscard]] std::optional<std::string> Rest();

 private:
  [[nodiscard]] bool MayShow(std::string_view overwritten, SteadyTime now);

  std::string pending_;
  std::optional<SteadyTime> shown_at_;  // the newest overwritten line
};

// The newest lines, limited to the size of a status field. Records of our own log (base/log.h) at level info are left
// out, because they never say why a rank died.
class LastLines {
 public:
  static constexpr std::size_t kMostLines = 20;
  static constexpr std::size_t kMostBytes = 2'048;

  void Add(std::string line);
  // Oldest first, joined by newlines; if a single line is too long, its end.
  [[nodiscard]] std::string Text() const;

 private:
  std::deque<std::string> lines_;
};

struct RankPlace {
  int local_rank = 0;
  int64_t round = 0;  // newest one that it was assigned to; 0: none yet
  int rank = 0;       // in that round
};

// "[rank 2 round 5] text", or "[local rank 0] text" before the first round. A JSON object remains one: the
// fields `rank` and `round` are added unless it has them, and `local_rank` before the first round.
[[nodiscard]] std::string Labelled(const std::string& line, const RankPlace& place);

}  // namespace lockstep::launch

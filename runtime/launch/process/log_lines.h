#pragma once
// Processes what a rank writes, line by line: splits the stream of bytes, labels the lines with the rank for
// the pod's log, and keeps the newest ones for the report of its death. Pure; one thread.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

// Splits bytes into lines without their newline. A line longer than kLongestLine is returned in pieces.
class LineCutter {
 public:
  static constexpr std::size_t kLongestLine = 16'384;

  [[nodiscard]] std::vector<std::string> Add(std::string_view bytes);
  // What followed the last newline; nothing if the newline was the last byte.
  [[nodiscard]] std::optional<std::string> Rest();

 private:
  std::string pending_;
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

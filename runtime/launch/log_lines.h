#pragma once
// What a rank writes, line by line: cut out of a stream of bytes, labelled with the rank's place for the
// pod's log, the newest kept for the time after its death. Pure; one thread.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

// Bytes in, whole lines out, without their newline. A line longer than kLongestLine comes in pieces.
class LineCutter {
 public:
  static constexpr std::size_t kLongestLine = 16'384;

  [[nodiscard]] std::vector<std::string> Add(std::string_view bytes);
  // What came after the last newline; nothing where that was the last byte.
  [[nodiscard]] std::optional<std::string> Rest();

 private:
  std::string pending_;
};

// The newest lines, few enough for a status field.
class LastLines {
 public:
  static constexpr std::size_t kMostLines = 20;
  static constexpr std::size_t kMostBytes = 2'048;

  void Add(std::string line);
  // Oldest first, joined by newlines; of a line that is too long alone, its end.
  [[nodiscard]] std::string Text() const;

 private:
  std::deque<std::string> lines_;
};

struct RankPlace {
  int local_rank = 0;
  int64_t round = 0;  // newest it was given; 0: none yet
  int rank = 0;       // in that round
};

// "[rank 2 round 5] text", before the first round "[local rank 0] text". A JSON object stays one: it gets the
// fields `rank` and `round` unless it has them, and `local_rank` before the first round.
[[nodiscard]] std::string Labelled(const std::string& line, const RankPlace& place);

}  // namespace lockstep::launch

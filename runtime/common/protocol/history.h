#pragma once
// history.jsonl, which lies beside the checkpoints: what became of a training, one JSON object per line,
// oldest first. Rank 0 of a round writes it with every save (runtime/checkpoint), `lockstep plot` reads it.
// Plain values, pure.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"

namespace lockstep::protocol {

inline constexpr std::string_view kHistoryName = "history.jsonl";

enum class HistoryKind {
  kStep,
  kEvaluation,
  kRound,  // one begins
};

struct HistoryRecord {
  HistoryKind kind = HistoryKind::kStep;
  WallTime time{};
  int64_t round = 0;
  int world = 1;     // ranks
  int64_t step = 0;  // steps done; of kRound: before its first
  double epoch = 0;
  // Of a step its global batch's, of an evaluation the test set's. Not a number: not finite.
  double loss = std::numeric_limits<double>::quiet_NaN();
  double accuracy = 0;            // kEvaluation
  double samples_per_second = 0;  // kStep
  std::string source;             // kRound: where the writer's state came from, as in Synced
  std::string cause;              // kRound: how the round before ended; empty: none did, or nobody here knows
};

// Oldest first. Beyond kMostRecords it is thinned to about half of that, evenly over the steps, at the cost
// of the most frequent kind: a few rounds stay among many steps.
inline constexpr std::size_t kMostRecords = 2000;
void Append(std::vector<HistoryRecord>& history, HistoryRecord record);

// What is stored, continued by a process that entered its first round with the first of `mine`: up to that
// step what is stored counts, from there on its own, but for the steps that others made while it was in no
// round. So a step that is made again stands there once. Of a training that begins afresh, nothing before
// counts.
[[nodiscard]] std::vector<HistoryRecord> Continue(const std::vector<HistoryRecord>& stored,
                                                  const std::vector<HistoryRecord>& mine);

[[nodiscard]] std::string EncodeHistory(const std::vector<HistoryRecord>& history);

struct HistoryText {
  std::vector<HistoryRecord> records;
  std::vector<std::string> problems;  // "line 3: step: must be an integer, …"; the others are read
};
// Fields that it does not know are passed over.
[[nodiscard]] HistoryText ReadHistory(std::string_view text);

}  // namespace lockstep::protocol

#pragma once
// history.jsonl, in the folder of the checkpoints: the course of a training, one JSON object per line, oldest
// first. Rank 0 of a round writes it with every save (runtime/checkpoint); `lockstep plot` reads it. Plain
// values, pure.

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
  kRound,  // a round begins
};

struct HistoryRecord {
  HistoryKind kind = HistoryKind::kStep;
  WallTime time{};
  int64_t round = 0;
  int world = 1;     // ranks
  int64_t step = 0;  // completed steps; for kRound: before its first
  double epoch = 0;
  // For a step: over its global batch; for an evaluation: over the test set. NaN: not finite.
  double loss = std::numeric_limits<double>::quiet_NaN();
  double accuracy = 0;            // kEvaluation
  double samples_per_second = 0;  // kStep, smoothed
  // kStep: share of the time in which the writer waited for other ranks, smoothed
  double communication_ratio = 0;
  std::string source;  // kRound: the source of the writer's state, as in Synced
  std::string cause;   // kRound: how the previous round ended; empty: there was none, or it is unknown
};

// Oldest first. Beyond kMostRecords the history is thinned to about half, evenly over the steps, from the
// most frequent kind, so that a few rounds are kept among many steps.
inline constexpr std::size_t kMostRecords = 2000;
void Append(std::vector<HistoryRecord>& history, HistoryRecord record);

// Joins the stored history with that of a process (`mine`), whose first record is its first round. Up to the
// step of that record the stored history counts, then the process's own, except for steps that other ranks
// made while it was in no round. So a repeated step occurs once. If the training starts from the beginning,
// no earlier record counts.
[[nodiscard]] std::vector<HistoryRecord> Continue(const std::vector<HistoryRecord>& stored,
                                                  const std::vector<HistoryRecord>& mine);

[[nodiscard]] std::string EncodeHistory(const std::vector<HistoryRecord>& history);

struct HistoryText {
  std::vector<HistoryRecord> records;
  std::vector<std::string> problems;  // "line 3: step: must be an integer, …"; the other lines are read
};
// Ignores unknown fields.
[[nodiscard]] HistoryText ReadHistory(std::string_view text);

}  // namespace lockstep::protocol

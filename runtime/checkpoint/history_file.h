#pragma once
// Rank 0's history.jsonl next to the checkpoints, rewritten with every save. No checkpoint depends on it, so
// an error is only logged, once. One thread.

#include <stop_token>
#include <vector>

#include "runtime/checkpoint/object_store.h"
#include "runtime/common/protocol/history.h"

namespace lockstep::checkpoint {

class HistoryFile {
 public:
  explicit HistoryFile(ObjectStore& store) : store_(store) {}  // must outlive it

  // Stores the existing history, continued by the records of this process.
  void Keep(const std::vector<protocol::HistoryRecord>& history, const std::stop_token& abandoned);

 private:
  [[nodiscard]] Result<void> WriteAndCatch(const std::vector<protocol::HistoryRecord>& history,
                                           const std::stop_token& abandoned);
  [[nodiscard]] Result<void> Write(const std::vector<protocol::HistoryRecord>& history,
                                   const std::stop_token& abandoned);

  ObjectStore& store_;
  bool fails_ = false;
};

}  // namespace lockstep::checkpoint

#pragma once
// Rank 0's history.jsonl beside the checkpoints, written anew with every save. No checkpoint depends on it:
// what goes wrong with it is logged, once, and no more. One thread.

#include <stop_token>
#include <vector>

#include "runtime/checkpoint/object_store.h"
#include "runtime/common/protocol/history.h"

namespace lockstep::checkpoint {

class HistoryFile {
 public:
  explicit HistoryFile(ObjectStore& store) : store_(store) {}  // which outlives it

  // What is stored, continued by what this process took part in.
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

#pragma once
// What one rank claims of one window, by adding to the counter of the round: a batch ahead of its use, so
// that it can be read meanwhile, and no further, or a slow rank would hold what others could do. The loader's
// threads claim; the step thread is told what.

#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "runtime/comm/shared_counter.h"
#include "runtime/common/base/mutex.h"
#include "runtime/data/training_samples.h"
#include "runtime/train/claims.h"

namespace lockstep::train {

class WindowClaims {
 public:
  struct Terms {
    std::shared_ptr<comm::SharedCounter> counter;  // shared: a claim may be under way when the round ends
    int64_t first = 0;                             // where the counter stood at the window's begin
    std::vector<Claim> claims;                     // of the window
    std::vector<double> rates;                     // of the ranks
    int rank = 0;
    std::optional<int64_t> micro_batch;
  };
  explicit WindowClaims(Terms terms) : terms_(std::move(terms)) {}

  // The next micro-batch of what this rank claims; nothing after the last, or where claiming failed. One
  // thread at a time.
  [[nodiscard]] std::optional<data::Draw> NextDraw();
  // The next claim, in the order of the draws; nothing after the last. kCancelled after Stop. Step thread.
  [[nodiscard]] Result<std::optional<Claim>> Next();
  // Claims nothing more, and wakes who waits. Any thread.
  void Stop() { stop_.request_stop(); }
  // How often this rank has raised the counter, in vain at the end. Step thread, after the last claim.
  [[nodiscard]] int64_t asked() const;

 private:
  using Told = Result<std::optional<Claim>>;
  [[nodiscard]] Told ClaimOne();

  const Terms terms_;
  std::stop_source stop_;
  // Of NextDraw's thread.
  Claim newest_;
  std::vector<Slice> pieces_;
  std::size_t next_piece_ = 0;
  int64_t held_ = 0;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Told> told_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t asked_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::train

#pragma once
// Claims the batches of one window for one rank by adding to the round's counter. It claims one batch ahead,
// so that the batch can be read while the one before is computed, but no further, because a slow rank would
// hold batches that others could compute. The loader's threads claim; the step thread receives the claims.

#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "runtime/comm/shared_counter.h"
#include "runtime/common/base/mutex.h"
#include "runtime/data/training_samples.h"
#include "runtime/train/local_sgd/claims.h"

namespace lockstep::train {

class WindowClaims {
 public:
  struct Terms {
    std::shared_ptr<comm::SharedCounter> counter;  // shared: a claim may be under way when the round ends
    int64_t first = 0;                             // the counter's value at the beginning of the window
    std::vector<Claim> claims;                     // of the window
    std::vector<double> rates;                     // of the ranks
    int rank = 0;
    std::optional<int64_t> micro_batch;
  };
  explicit WindowClaims(Terms terms) : terms_(std::move(terms)) {}

  // The next micro-batch of this rank's claims. Returns nothing after the last one, or if claiming failed.
  // One thread at a time.
  [[nodiscard]] std::optional<data::Draw> NextDraw();
  // The next claim, in the order of the draws. Returns nothing after the last one. kCancelled after Stop.
  // Step thread.
  [[nodiscard]] Result<std::optional<Claim>> Next();
  // Stops claiming and wakes waiting threads. Any thread.
  void Stop() { stop_.request_stop(); }
  // How often this rank has incremented the counter, including the increments that yielded no batch. Step
  // thread, after the last claim.
  [[nodiscard]] int64_t asked() const;

 private:
  using Claimed = Result<std::optional<Claim>>;
  [[nodiscard]] Claimed ClaimOne();

  const Terms terms_;
  std::stop_source stop_;
  // Owned by the thread that calls NextDraw.
  Claim newest_;
  std::vector<Slice> pieces_;
  std::size_t next_piece_ = 0;
  int64_t held_ = 0;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Claimed> claimed_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t asked_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::train

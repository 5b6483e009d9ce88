#include "runtime/train/local_sgd/window_claims.h"

namespace lockstep::train {

std::optional<data::Draw> WindowClaims::NextDraw() {
  if (next_piece_ == pieces_.size()) {
    const Claimed claimed = ClaimOne();
    const bool is_claim = claimed.ok() && claimed->has_value();
    if (is_claim) newest_ = **claimed;
    {
      const MutexLock lock(mutex_);
      claimed_.push_back(claimed);
      changed_.notify_all();
    }
    if (!is_claim) return std::nullopt;
    pieces_ = MicroBatches(newest_.positions, terms_.micro_batch);
    next_piece_ = 0;
    held_ = 1;  // the next one is requested when work on this one begins
  }
  const Slice piece = pieces_[next_piece_++];
  return data::Draw{newest_.step, piece.begin, piece.end};
}

WindowClaims::Claimed WindowClaims::ClaimOne() {
  const std::stop_token stop = stop_.get_token();
  const auto all = static_cast<int64_t>(terms_.claims.size());
  if (!IsFastest(terms_.rates, terms_.rank)) {
    LOCKSTEP_TRY(const int64_t taken, terms_.counter->Add(0, stop));
    if (!IsWorthClaiming(terms_.rates, terms_.rank, held_, all - (taken - terms_.first)))
      return std::optional<Claim>();
  }
  LOCKSTEP_TRY(const int64_t number, terms_.counter->Add(1, stop));
  {
    const MutexLock lock(mutex_);
    ++asked_;
  }
  const int64_t mine = number - terms_.first;
  if (mine >= all) return std::optional<Claim>();
  return std::optional(terms_.claims[static_cast<std::size_t>(mine)]);
}

Result<std::optional<Claim>> WindowClaims::Next() {
  MutexLock lock(mutex_);
  if (!changed_.wait(lock, stop_.get_token(),
                     [this]() LOCKSTEP_REQUIRES(mutex_) { return !claimed_.empty(); }))
    return Error{ErrorCode::kCancelled, "the round ended inside a window"};
  Claimed claimed = claimed_.front();
  claimed_.pop_front();
  return claimed;
}

int64_t WindowClaims::asked() const {
  const MutexLock lock(mutex_);
  return asked_;
}

}  // namespace lockstep::train

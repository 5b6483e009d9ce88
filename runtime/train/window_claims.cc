#include "runtime/train/window_claims.h"

namespace lockstep::train {

std::optional<data::Draw> WindowClaims::NextDraw() {
  if (next_piece_ == pieces_.size()) {
    const Told told = ClaimOne();
    const bool is_claim = told.ok() && told->has_value();
    if (is_claim) newest_ = **told;
    {
      const MutexLock lock(mutex_);
      told_.push_back(told);
      changed_.notify_all();
    }
    if (!is_claim) return std::nullopt;
    pieces_ = MicroBatches(newest_.places, terms_.micro_batch);
    next_piece_ = 0;
    held_ = 1;  // the next one is asked for when work on this one begins
  }
  const Slice piece = pieces_[next_piece_++];
  return data::Draw{newest_.step, piece.begin, piece.end};
}

WindowClaims::Told WindowClaims::ClaimOne() {
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
  if (!changed_.wait(lock, stop_.get_token(), [this]() LOCKSTEP_REQUIRES(mutex_) { return !told_.empty(); }))
    return Error{ErrorCode::kCancelled, "the round ended inside a window"};
  Told told = told_.front();
  told_.pop_front();
  return told;
}

int64_t WindowClaims::asked() const {
  const MutexLock lock(mutex_);
  return asked_;
}

}  // namespace lockstep::train

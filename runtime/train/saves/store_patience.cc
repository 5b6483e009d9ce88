#include "runtime/train/saves/store_patience.h"

#include <algorithm>

#include "runtime/common/base/strings.h"

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;

constexpr Milliseconds kFirstPause = 500ms;
constexpr Milliseconds kLongestPause = 10s;

}  // namespace

void StorePatience::Answered() {
  if (!since_.has_value()) return;
  since_.reset();
  reported_.clear();
  context_.report({});
}

void StorePatience::Missed(const Error& error, std::string_view waiting) {
  if (!since_.has_value()) {
    since_ = context_.clock.Steady();
    next_pause_ = kFirstPause;
  }
  if (reported_ == waiting) return;
  reported_ = waiting;
  context_.report({.waiting = reported_, .reason = error.message});
}

Result<void> StorePatience::Await(const Error& error, std::string_view waiting) {
  Missed(error, waiting);
  if (context_.clock.Steady() - *since_ >= context_.patience) {
    return error.WithContext("spec.failurePolicy.storePatienceSeconds: the store has been away for " +
                             FormatNumber(context_.patience.count()) + " s");
  }
  if (!context_.pause(next_pause_)) return Error{ErrorCode::kCancelled, "waiting for the store was stopped"};
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
  return {};
}

}  // namespace lockstep::train

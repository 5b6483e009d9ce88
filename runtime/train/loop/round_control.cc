#include "runtime/train/loop/round_control.h"

#include <algorithm>
#include <utility>

namespace lockstep::train {

void RoundControl::OnMessage(const protocol::ToRank& message) {
  std::visit([this](const auto& m) { Handle(m); }, message);
}

void RoundControl::Handle(const protocol::RankAssignment& assignment) {
  const MutexLock lock(mutex_);
  next_ = assignment;
  round_ = assignment.round;
  yield_ = false;
  profile_.reset();
  aborted_ = std::stop_source();
  changed_.notify_all();
}

void RoundControl::Handle(const protocol::RoundOver& over) {
  std::shared_ptr<comm::Communicator> to_abort;
  std::stop_source aborted{std::nostopstate};
  {
    const MutexLock lock(mutex_);
    if (over.round != round_) return;  // concerns a round that this rank has already left
    if (over.mode == protocol::LeaveMode::kYield) {
      yield_ = true;
    } else {
      aborted = aborted_;
      to_abort = communicator_;
    }
  }
  // Without the lock, because stop callbacks may run on this thread, and the abort takes milliseconds.
  if (aborted.stop_possible()) aborted.request_stop();
  if (to_abort != nullptr) to_abort->Abort();
}

void RoundControl::Handle(const protocol::Stop& stop) {
  const MutexLock lock(mutex_);
  stop_deadline_ =
      clock_.Steady() + std::chrono::duration_cast<SteadyTime::duration>(Seconds(stop.grace_seconds));
  changed_.notify_all();
}

void RoundControl::Handle(const protocol::Save&) {
  const MutexLock lock(mutex_);
  save_ = true;
}

void RoundControl::Handle(const protocol::ProfileWanted& request) {
  const MutexLock lock(mutex_);
  profile_ = request;
}

std::optional<protocol::RankAssignment> RoundControl::WaitForAssignment(bool hands_over) {
  MutexLock lock(mutex_);
  // Needs no deadline: the supervisor bounds the wait for a round, and this process ends when the supervisor
  // does.
  changed_.wait(
      lock, [this]() LOCKSTEP_REQUIRES(mutex_) { return next_.has_value() || stop_deadline_.has_value(); });
  if (stop_deadline_.has_value() && hands_over) {
    const SteadyTime::duration half = (*stop_deadline_ - clock_.Steady()) / 2;
    changed_.wait_for(lock, half, [this]() LOCKSTEP_REQUIRES(mutex_) { return next_.has_value(); });
  } else if (stop_deadline_.has_value()) {
    return std::nullopt;
  }
  return std::exchange(next_, std::nullopt);
}

void RoundControl::Pause(Milliseconds time) {
  MutexLock lock(mutex_);
  changed_.wait_for(lock, time, [this]() LOCKSTEP_REQUIRES(mutex_) { return stop_deadline_.has_value(); });
}

void RoundControl::Attach(std::shared_ptr<comm::Communicator> communicator) {
  const comm::Communicator& joined = *communicator;
  bool late = false;
  {
    const MutexLock lock(mutex_);
    // If the supervisor has already assigned a newer round, this one is over, even without an explicit
    // message.
    late = aborted_.stop_requested() || joined.place().round != round_;
    communicator_ = communicator;
  }
  if (late) communicator->Abort();
}

void RoundControl::Detach() {
  std::shared_ptr<comm::Communicator> dropped;
  const MutexLock lock(mutex_);
  dropped = std::exchange(communicator_, nullptr);
}

bool RoundControl::PauseInRound(Milliseconds time) {
  MutexLock lock(mutex_);
  const std::stop_token aborted = aborted_.get_token();
  changed_.wait_for(lock, aborted, time,
                    [this]() LOCKSTEP_REQUIRES(mutex_) { return stop_deadline_.has_value(); });
  return !stop_deadline_.has_value() && !aborted.stop_requested();
}

std::stop_token RoundControl::round_aborted() const {
  const MutexLock lock(mutex_);
  return aborted_.get_token();
}

bool RoundControl::yield_requested() const {
  const MutexLock lock(mutex_);
  return yield_;
}

bool RoundControl::stop_requested() const {
  const MutexLock lock(mutex_);
  return stop_deadline_.has_value();
}

bool RoundControl::save_requested() const {
  const MutexLock lock(mutex_);
  return save_;
}

void RoundControl::SaveBegins() {
  const MutexLock lock(mutex_);
  save_ = false;
}

std::optional<protocol::ProfileWanted> RoundControl::profile_wanted() const {
  const MutexLock lock(mutex_);
  return profile_;
}

void RoundControl::ProfileAgreed(const std::string& request) {
  const MutexLock lock(mutex_);
  if (profile_.has_value() && profile_->request == request) profile_.reset();
}

bool RoundControl::waits_for_peers() const {
  const MutexLock lock(mutex_);
  return communicator_ != nullptr && communicator_->waits_for_peers();
}

double RoundControl::grace_seconds_left() const {
  const MutexLock lock(mutex_);
  if (!stop_deadline_.has_value()) return 0;
  return std::max(0.0, Seconds(*stop_deadline_ - clock_.Steady()).count());
}

}  // namespace lockstep::train

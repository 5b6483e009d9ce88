#pragma once
// What the supervisor wants, between the thread that hears it and the step thread: the next assignment, the
// end of a round (an abort reaches the running collective at once), the wish to stop.

#include <condition_variable>
#include <memory>
#include <optional>
#include <stop_token>

#include "runtime/comm/communicator.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/protocol/rank_control.h"

namespace lockstep::train {

class RoundControl {
 public:
  explicit RoundControl(const Clock& clock) : clock_(clock) {}

  // The control thread.
  void OnMessage(const protocol::ToRank& message);

  // The step thread. Waits for a place in a round; nothing where the process was asked to stop.
  [[nodiscard]] std::optional<protocol::RankAssignment> WaitForAssignment();
  // Returns early where the rank is to stop.
  void Pause(Milliseconds time);
  // False where the rank is to stop, or the round is aborted, before the time is over.
  [[nodiscard]] bool PauseInRound(Milliseconds time);
  // From here on an abort of the current round goes to this communicator; at once, where it came before.
  void Attach(std::shared_ptr<comm::Communicator> communicator);
  void Detach();

  // Stopped as soon as the current round is aborted; for waits of the step thread that are no collectives.
  [[nodiscard]] std::stop_token round_aborted() const;
  [[nodiscard]] bool yield_requested() const;
  [[nodiscard]] bool stop_requested() const;
  // Somebody wants a checkpoint beside those that are due, until one begins.
  [[nodiscard]] bool save_requested() const;
  void SaveBegins();
  // Somebody wants a profile; of this round, as it is told anew in the next. Until all know of it.
  [[nodiscard]] std::optional<protocol::ProfileWanted> profile_wanted() const;
  void ProfileAgreed(const std::string& request);
  // Whether the step thread is in a collective, to which this rank has given its part. Any thread.
  [[nodiscard]] bool waits_for_peers() const;
  // Until the process must be gone; only where a stop was requested.
  [[nodiscard]] double grace_seconds_left() const;

 private:
  void Handle(const protocol::RankAssignment& assignment);
  void Handle(const protocol::RoundOver& over);
  void Handle(const protocol::Stop& stop);
  void Handle(const protocol::Save& save);
  void Handle(const protocol::ProfileWanted& wish);
  void Handle(const protocol::Ping&) {}  // for whoever holds the link

  const Clock& clock_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<protocol::RankAssignment> next_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t round_ LOCKSTEP_GUARDED_BY(mutex_) = 0;         // of the newest assignment heard
  bool yield_ LOCKSTEP_GUARDED_BY(mutex_) = false;        // of that round
  std::stop_source aborted_ LOCKSTEP_GUARDED_BY(mutex_);  // of that round
  bool save_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::optional<protocol::ProfileWanted> profile_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<SteadyTime> stop_deadline_ LOCKSTEP_GUARDED_BY(mutex_);
  // Shared: an abort may run while the step thread drops it.
  std::shared_ptr<comm::Communicator> communicator_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::train

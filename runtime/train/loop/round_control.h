#pragma once
// Passes the supervisor's messages from the control thread to the step thread: the next assignment, the end
// of a round (an abort reaches the running collective at once), and requests to stop, save or profile.

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

  // The control thread; of a Stop that a rank of the same pod has read first, the step thread.
  void OnMessage(const protocol::ToRank& message);

  // Waits for the assignment of the next round. Returns nothing if the process was asked to stop; with
  // `hands_over`, only when half of the grace period has passed since then.
  [[nodiscard]] std::optional<protocol::RankAssignment> WaitForAssignment(bool hands_over);
  // Returns early if the rank is asked to stop.
  void Pause(Milliseconds time);
  // Returns false if the rank is asked to stop, or the round is aborted, before the time is over.
  [[nodiscard]] bool PauseInRound(Milliseconds time);
  // From now on an abort of the current round aborts this communicator, immediately if the abort came before.
  void Attach(std::shared_ptr<comm::Communicator> communicator);
  void Detach();

  // Stops when the current round is aborted. For waits of the step thread outside of collectives.
  [[nodiscard]] std::stop_token round_aborted() const;
  [[nodiscard]] bool yield_requested() const;
  [[nodiscard]] bool stop_requested() const;
  // A checkpoint was requested in addition to the periodic ones; true until one begins.
  [[nodiscard]] bool save_requested() const;
  void SaveBegins();
  // The requested profile of this round (the supervisor repeats the request in the next round), until
  // ProfileAgreed is called.
  [[nodiscard]] std::optional<protocol::ProfileWanted> profile_wanted() const;
  void ProfileAgreed(const std::string& request);
  // Whether the step thread is in a collective to which this rank has given its part. Any thread.
  [[nodiscard]] bool waits_for_peers() const;
  // Time until the process must have ended. Valid only if a stop was requested.
  [[nodiscard]] double grace_seconds_left() const;

 private:
  void Handle(const protocol::RankAssignment& assignment);
  void Handle(const protocol::RoundOver& over);
  void Handle(const protocol::Stop& stop);
  void Handle(const protocol::Save& save);
  void Handle(const protocol::ProfileWanted& request);
  void Handle(const protocol::Ping&) {}  // answered by the thread that reads the link
  // Of programs; this rank saves when it is asked to stop, and is killed where a program is.
  void Handle(const protocol::NodeDeparts&) {}
  void Handle(const protocol::KillProgram&) {}
  void Handle(const protocol::StartFirst&) {}

  const Clock& clock_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<protocol::RankAssignment> next_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t round_ LOCKSTEP_GUARDED_BY(mutex_) = 0;         // of the newest assignment received
  bool yield_ LOCKSTEP_GUARDED_BY(mutex_) = false;        // of that round
  std::stop_source aborted_ LOCKSTEP_GUARDED_BY(mutex_);  // of that round
  bool save_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::optional<protocol::ProfileWanted> profile_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<SteadyTime> stop_deadline_ LOCKSTEP_GUARDED_BY(mutex_);
  // Shared, because an abort may run while the step thread drops it.
  std::shared_ptr<comm::Communicator> communicator_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::train

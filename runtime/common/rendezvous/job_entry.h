#pragma once
// One job inside the rendezvous service: its Round, the requests that wait for an answer, and the view for
// the host. Not synchronised: the service calls it under its lock, and sends the returned answers after
// releasing it.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/http/server.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/round.h"
#include "runtime/common/rendezvous/scaling.h"
#include "runtime/common/rendezvous/stragglers.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

// Answers to send once the lock is released.
using Outbox = std::vector<std::pair<http::Responder, http::Response>>;

struct Moment {
  SteadyTime steady;
  WallTime wall;
};

class JobEntry {
 public:
  JobEntry(protocol::JobIdentity job, const JobSettings& settings, SteadyTime began = {});

  void Configure(const JobSettings& settings);

  void Join(const protocol::JoinRequest& request, http::Responder respond, Moment now, Outbox& outbox);
  void Watch(const protocol::WatchRequest& request, http::Responder respond, Moment now, Outbox& outbox);
  void Heartbeat(const protocol::Heartbeat& heartbeat, http::Responder respond, Moment now, Outbox& outbox);
  void Broken(const protocol::BrokenReport& report, http::Responder respond, Moment now, Outbox& outbox);
  void Leave(const protocol::LeaveRequest& request, http::Responder respond, Moment now, Outbox& outbox);
  void PodGone(const PodEnd& end, Moment now, Outbox& outbox);

  void ExtendTimeouts(SteadyTime::duration pause) { round_.ExtendTimeouts(pause); }

  // Applies time-outs to the round and the long polls. True if the view changed in a way worth a reconcile:
  // round, membership, completion.
  bool Advance(Moment now, Outbox& outbox);

  [[nodiscard]] const protocol::JobIdentity& job() const { return job_; }
  [[nodiscard]] SteadyTime began() const { return began_; }
  [[nodiscard]] RendezvousView View() const;  // without `listening`

 private:
  struct PendingJoin {
    protocol::Member member;
    http::Responder respond;
    SteadyTime deadline;
  };
  struct PendingWatch {
    int64_t round = 0;
    http::Responder respond;
    SteadyTime deadline;
  };

  // The state that the answers to long polls depend on; a revision also changes for less.
  struct Rounds {
    int64_t running = 0;
    int64_t ended = 0;
    bool completed = false;
    friend bool operator==(const Rounds&, const Rounds&) = default;
  };

  // True if it has rejected the message: the sender was evicted, or the message does not fit the job.
  template <typename Message>
  [[nodiscard]] bool Refuses(const Message& message, http::Responder& respond, Outbox& outbox) const;
  [[nodiscard]] bool IsNewcomer(const protocol::JoinRequest& request) const;
  [[nodiscard]] bool IsNewcomer(const protocol::Heartbeat& heartbeat) const;
  [[nodiscard]] Rounds CurrentRounds() const;
  // The instruction for a member: wait, enter the running round, or exit.
  [[nodiscard]] protocol::JoinAnswer AnswerFor(const protocol::Member& member) const;
  [[nodiscard]] std::string PreviousEnd() const;
  void AnswerJoins(SteadyTime now, Outbox& outbox);
  void AnswerWatches(SteadyTime now, Outbox& outbox);
  [[nodiscard]] bool IsOver(int64_t round) const;
  [[nodiscard]] protocol::WatchAnswer AnswerFor(int64_t round) const;
  void TakeHeldStep(int64_t step);
  void RequestSave(const std::string& request);
  void RequestProfile(const protocol::ProfileWanted& wanted);
  void TakeProfile(const protocol::Heartbeat& heartbeat);
  void TakeWantedSave(const protocol::Heartbeat& heartbeat);
  void TakeStoreOutage(const protocol::Heartbeat& heartbeat, Moment now);
  [[nodiscard]] std::optional<StoreOutage> CurrentOutage() const;
  void TakeProgress(const protocol::Heartbeat& heartbeat, Moment now);
  // The end of the newest ended round, with the number under which it is recorded.
  [[nodiscard]] Ending EndingOfFormation() const;
  // The stragglers among the member's ranks that it should act on.
  [[nodiscard]] std::vector<protocol::Straggler> StragglersOf(const protocol::Heartbeat& heartbeat) const;
  void RecordChanges(Moment now);
  void RecordRecovery(const protocol::Progress& progress, Moment now);

  protocol::JobIdentity job_;
  SteadyTime began_;
  Round round_;
  std::optional<Stragglers> stragglers_;
  Scaling scaling_;
  bool keeps_state_ = false;               // members keep their state between rounds, by their heartbeats
  std::string waits_for_;                  // from the settings
  std::map<int, std::string> departures_;  // from the settings
  std::set<int> spared_;                   // slots that were restarted for being slow, which is done once
  RendezvousView view_;                    // without the fields that View() takes from round_
  int64_t seen_revision_ = 0;
  Rounds answered_;
  SteadyTime next_sweep_{};                      // of the long polls, for expired ones
  std::map<int, PendingJoin> joins_;             // by slot
  std::map<std::string, PendingWatch> watches_;  // by uid of the pod: the newest of each
  int64_t recorded_round_ = 0;                   // the running round once it is in view_.changes
  int64_t repaired_to_ = 0;                      // newest formation that the members made by themselves
  // rounds in view_.changes without a completed step since, with their ends
  std::map<int64_t, Moment> unrecovered_;
  // A requested checkpoint. `from_step`, the step that it must have reached, is set by the next heartbeat.
  struct WantedSave {
    std::string request;
    std::optional<int64_t> from_step;
  };
  std::optional<WantedSave> wanted_save_;
  std::string save_request_;  // newest
  // A requested profile. `before`: the profile agreed on earlier, because a request may have the same text
  // again.
  struct WantedProfile {
    protocol::ProfileWanted wanted;
    protocol::ProfileAgreed before;
  };
  std::optional<WantedProfile> wanted_profile_;
  std::string profile_request_;             // newest
  protocol::ProfileAgreed agreed_profile_;  // newest
  std::map<int, StoreOutage> outages_;      // by slot of the reporting member
  bool has_update_ = false;                 // progress or damage worth a reconcile
};

}  // namespace lockstep::rendezvous

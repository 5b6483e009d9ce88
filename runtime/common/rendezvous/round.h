#pragma once
// The membership decision of one job as a pure state machine: events in, decisions with reasons out. No I/O,
// no clock, no threads: `now` is a parameter, the service (service.h) owns one Round per job and calls it
// under its lock.
//
//   Gathering ──(closing rule)──► Running ──(broken, left, lost, newcomer)──► Gathering …
//
// Closing rule: all expected members are in; or min_members are in and every missing one is known to be dead
// (at once) or, for those nobody saw die, the last call has passed. A member of the last round whose
// supervisor still answers is always waited for: it holds the state. A round never has more than the expected
// members; who finds it full waits outside as a standby. One that says in its join that it has finished the
// running round keeps its place until the job is complete by the settings' success rule. Survivors keep their
// relative order, then come standbys, then newcomers, each by slot. Numbers only rise. The shape follows
// torchft's quorum_compute (decision and reason from state and now).
//
// An event costs the same for 3 and for 10,000 members: what would need a look at all of them is counted as
// they change, and time-outs are looked for only when the first of them can have passed.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/evictions.h"
#include "runtime/common/rendezvous/settings.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

// A member's place in a round.
struct Peer {
  std::string pod;
  std::string pod_uid;
  int slot = 0;
  int first_rank = 0;
  int nproc = 1;
  bool holds_state = false;  // when it came in
};

// A round that was given out.
struct ClosedRound {
  int64_t number = 0;
  int world = 0;            // ranks
  std::vector<Peer> peers;  // in rank order
  std::string store_host;
  int store_port = 0;
  int form_port = 0;
  std::string form_key;
  int64_t newest_step = -1;
  std::string reason;
};

// Why the newest round ended. It may learn more while the next one gathers: a collective often fails before
// anybody has seen who died.
struct Ending {
  int64_t round = 0;
  protocol::LeaveMode mode = protocol::LeaveMode::kAbort;
  std::string cause;  // Infrastructure, Preemption, Rendezvous or Scale
  std::string reason;
  int members = 0;  // that had a place in it
  std::vector<Departure> departures;
};

// What the host saw of the end of a pod.
struct PodEnd {
  std::string pod_uid;
  std::string reason;  // for people
  std::string cause = "Infrastructure";
  std::optional<int> exit_code;
  std::string node;  // empty: not known
};

enum class Admission {
  kAccepted,
  kEvicted,  // a deleted pod or an older incarnation (evictions.h): must exit, never comes back
};

class Round {
 public:
  explicit Round(const JobSettings& settings) : settings_(settings), next_round_(settings.first_round) {}

  void SetSettings(const JobSettings& settings);

  Admission Join(const protocol::JoinRequest& request, SteadyTime now);
  // Presence; also takes over a running round that this Round has not seen (its host was restarted).
  Admission Heartbeat(const protocol::Heartbeat& heartbeat, SteadyTime now);
  Admission Broken(const protocol::BrokenReport& report, SteadyTime now);
  Admission Leave(const protocol::LeaveRequest& request, SteadyTime now);
  // The pod is gone for good: its uid never re-enters.
  void PodGone(const PodEnd& end, SteadyTime now);
  // The host stood still for so long: what came in meanwhile is still unread, so nobody was silent.
  void Forgive(SteadyTime::duration pause);
  // Applies time-outs, then the closing rule. Call after each event and as time passes.
  void Tick(SteadyTime now);

  [[nodiscard]] Admission Check(const protocol::Member& member) const;
  // It has joined, or its heartbeat was taken over.
  [[nodiscard]] bool Knows(const protocol::Member& member) const;
  // This heartbeat would be taken over as one of a running round that this Round has not seen.
  [[nodiscard]] bool CanAdopt(const protocol::Heartbeat& heartbeat) const;
  [[nodiscard]] const JobSettings& settings() const { return settings_; }
  // The slot of the pod, unless another pod has taken it over since.
  [[nodiscard]] std::optional<int> SlotOf(const std::string& pod_uid) const;
  // The round that is running, if one is.
  [[nodiscard]] const std::optional<ClosedRound>& running() const { return running_; }
  // The first rank of the slot's member in it; nullopt: it has no place.
  [[nodiscard]] std::optional<int> FirstRankOf(int slot) const;
  // Rises when a round begins, ends or is completed, when more is known of its end, when somebody comes or
  // goes beside it, and with each member of one that is taken over.
  [[nodiscard]] int64_t revision() const { return revision_; }
  // How the newest round ended; nullopt before any did.
  [[nodiscard]] const std::optional<Ending>& last_ending() const { return last_ending_; }
  [[nodiscard]] bool completed() const { return completed_; }
  // Completed while some were not through: these need not go on.
  [[nodiscard]] bool dismisses() const { return dismisses_; }
  [[nodiscard]] int64_t newest_number() const { return next_round_ - 1; }
  // Members without a place that live and want one.
  [[nodiscard]] int waiting() const { return Count(kWaiting) + Count(kLeft); }
  // Uids of the pods of all members that are not silent.
  [[nodiscard]] std::vector<std::string> Heard() const;
  // Members that a round has room for.
  [[nodiscard]] int places() const { return std::min(settings_.expected_members, settings_.max_members); }

 private:
  enum Standing {
    kWaiting,  // asks for a place
    kInRound,  // has one in the running round
    kLeft,     // alive, had a place in the last round, not back yet: holds state
    kDead,     // known to be gone or without ranks; need not be waited for
    kStandings,
  };
  struct Record {
    protocol::JoinRequest request;  // newest
    Standing standing = kDead;      // changed by Move alone
    int last_rank = -1;             // first rank in the newest round; -1: it had no place there
    bool is_standby = false;        // waited outside of a full round
    SteadyTime last_seen{};
    SteadyTime joined_at{};
  };

  [[nodiscard]] const Record* Find(const protocol::Member& member) const;
  Record* Find(const protocol::Member& member);
  Record& RecordOf(int slot);
  void TakeFinish(const protocol::JoinRequest& request);
  [[nodiscard]] bool IsSuccess() const;  // of the newest round, by those who finished it
  [[nodiscard]] bool IsFinished(const Record& record) const;
  void Move(Record& record, Standing standing);
  Admission Admit(const protocol::Member& member);
  void EndRound(protocol::LeaveMode mode, std::string cause, std::string reason, SteadyTime now);
  void Lose(Record& record, protocol::LeaveMode mode, Departure departure, SteadyTime now);
  void Adopt(const protocol::Heartbeat& heartbeat, Record& record, SteadyTime now);
  void ExpireSilent(SteadyTime now);
  void YieldToNewcomers(SteadyTime now);
  [[nodiscard]] bool GrowDelayIsOver(SteadyTime now);
  void CloseIfReady(SteadyTime now);
  void Close(std::string reason);
  [[nodiscard]] std::vector<Record*> Waiting();
  [[nodiscard]] std::vector<Record*> ChooseMembers();
  // Slots from here on are to go after a scale down.
  [[nodiscard]] int wanted_slots() const { return settings_.expected_members + settings_.standby_members; }
  [[nodiscard]] std::size_t MostEvictions() const {
    return Evictions::Most(static_cast<std::size_t>(wanted_slots()));
  }
  [[nodiscard]] std::chrono::milliseconds LastCall() const;
  [[nodiscard]] int Count(Standing standing) const { return counts_[standing]; }
  [[nodiscard]] int MissingAlive() const;   // kLeft: their supervisors still answer
  [[nodiscard]] int MissingUnseen() const;  // wanted slots that nobody saw live or die

  JobSettings settings_;
  int64_t next_round_;
  int64_t revision_ = 0;
  std::map<int, Record> records_;           // by slot
  std::map<std::string, int> slot_of_pod_;  // by uid
  std::array<int, kStandings> counts_{};
  int seen_wanted_ = 0;       // records with a slot below wanted_slots()
  SteadyTime next_expiry_{};  // nobody is silent for too long before
  SteadyTime next_growth_{};  // no newcomer has waited for grow_delay before
  Evictions evictions_;
  std::optional<ClosedRound> running_;
  bool adopted_ = false;  // running_ was taken over from heartbeats
  std::optional<Ending> last_ending_;
  SteadyTime last_change_{};  // of the waiting set: the last call counts from here
  // Who reached the end of which round; some may have done so under a host before this one.
  struct Finished {
    int64_t round = 0;
    int world = 0;
    int ranks = 0;
    bool has_rank0 = false;
    std::set<int> slots;
  };
  Finished finished_;
  bool completed_ = false;
  bool dismisses_ = false;
};

}  // namespace lockstep::rendezvous

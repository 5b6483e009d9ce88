#pragma once
// The membership decision of one job as a pure state machine: events in, decisions with reasons out. No I/O,
// no clock, no threads: `now` is a parameter. The service (service.h) owns one Round per job and calls it
// under its lock.
//
//   waiting ──(closing rule)──► running ──(broken, left, lost, newcomer)──► waiting …
//
// Closing rule: a round closes when all expected members have joined; or when min_members have joined and
// every missing one is known to be dead (then at once) or, if its death was not observed, the last call has
// passed. A member of the last round whose supervisor still answers is always waited for, because it has the
// state. A round never has more than the expected members; a member that finds it full waits as a standby. A
// member whose join says that it has finished the running round keeps its place until the job is complete by
// the success rule of the settings. Survivors come first, in their previous order, then standbys, then
// newcomers, each by slot. Round numbers only increase. The design follows torchft's quorum_compute (decision
// and reason from state and now).
//
// The cost of an event does not depend on the number of members (up to 10,000): properties of all members are
// counted incrementally, and time-outs are checked only when the first of them may have passed.

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
  bool holds_state = false;  // when it joined
};

// A round that has been assigned to its members.
struct ClosedRound {
  int64_t number = 0;
  int world = 0;            // ranks
  std::vector<Peer> peers;  // in order of rank
  std::string store_host;
  int store_port = 0;
  int form_port = 0;
  std::string form_key;
  int64_t newest_step = -1;
  std::string reason;
  std::vector<std::string>
      hosts{};  // addresses of the peers; empty: not known, because the round was adopted
};

// Why the newest round ended. More may become known while members wait for the next round, because a
// collective often fails before the death is observed.
struct Ending {
  int64_t round = 0;
  protocol::LeaveMode mode = protocol::LeaveMode::kAbort;
  std::optional<protocol::FailureCause> cause;  // no value: the job grew or shrank on request
  std::string reason;
  int members = 0;  // in the round
  std::vector<Departure> departures;
};

// The end of a pod as the host observed it.
struct PodEnd {
  std::string pod_uid;
  std::string reason;  // for people
  protocol::FailureCause cause = protocol::FailureCause::kInfrastructure;
  std::optional<int> exit_code;
  std::string node;  // empty: not known
};

enum class Admission {
  kAccepted,
  kEvicted,  // a deleted pod or an older incarnation (evictions.h): must exit and never returns
};

class Round {
 public:
  explicit Round(const JobSettings& settings) : settings_(settings), next_round_(settings.first_round) {}

  void SetSettings(const JobSettings& settings);

  Admission Join(const protocol::JoinRequest& request, SteadyTime now);
  // Renews the member's presence. Adopts a running round that this Round does not know, because its host was
  // restarted.
  Admission Heartbeat(const protocol::Heartbeat& heartbeat, SteadyTime now);
  Admission Broken(const protocol::BrokenReport& report, SteadyTime now);
  Admission Leave(const protocol::LeaveRequest& request, SteadyTime now);
  // The pod is gone for good: its uid is never admitted again.
  void PodGone(const PodEnd& end, SteadyTime now);
  // The host did not run for this long: messages of that time are still unread, so no member counts as
  // silent.
  void ExtendTimeouts(SteadyTime::duration pause);
  // Applies time-outs, then the closing rule. Call after each event and as time passes.
  void Tick(SteadyTime now);

  [[nodiscard]] Admission Check(const protocol::Member& member) const;
  // True if the member has joined, or its heartbeat was adopted.
  [[nodiscard]] bool Contains(const protocol::Member& member) const;
  // True if this heartbeat would be adopted as one of a running round that this Round does not know.
  [[nodiscard]] bool CanAdopt(const protocol::Heartbeat& heartbeat) const;
  [[nodiscard]] const JobSettings& settings() const { return settings_; }
  // The slot of the pod, unless another pod has replaced it since.
  [[nodiscard]] std::optional<int> SlotOf(const std::string& pod_uid) const;
  // nullopt between rounds.
  [[nodiscard]] const std::optional<ClosedRound>& running() const { return running_; }
  // The first rank of the slot's member in the running round; nullopt: it has no place.
  [[nodiscard]] std::optional<int> FirstRankOf(int slot) const;
  // Increases when a round begins, ends or is completed, when more becomes known about its end, when a member
  // outside of it joins or leaves, and with each member of an adopted round.
  [[nodiscard]] int64_t revision() const { return revision_; }
  // How the newest round ended; nullopt before the first end.
  [[nodiscard]] const std::optional<Ending>& last_ending() const { return last_ending_; }
  [[nodiscard]] bool completed() const { return completed_; }
  // The job was completed before some members had finished: they should stop.
  [[nodiscard]] bool dismisses() const { return dismisses_; }
  [[nodiscard]] int64_t newest_number() const { return next_round_ - 1; }
  // Live members without a place that want one.
  [[nodiscard]] int waiting() const { return Count(kWaiting) + Count(kLeft); }
  // Uids of the pods of all members that are not silent.
  [[nodiscard]] std::vector<std::string> ResponsivePods() const;
  // Number of members that a round has room for.
  [[nodiscard]] int places() const { return std::min(settings_.expected_members, settings_.max_members); }

 private:
  enum MemberState {
    kWaiting,  // asks for a place
    kInRound,  // has a place in the running round
    kLeft,     // alive, had a place in the last round, has not joined again: has state
    kDead,     // gone or without ranks; is not waited for
    kMemberStates,
  };
  struct Record {
    protocol::JoinRequest request;  // newest
    MemberState state = kDead;      // changed only by Move
    int last_rank = -1;             // first rank in the newest round; -1: had no place in it
    bool is_standby = false;        // waited outside of a full round
    SteadyTime last_seen{};
    SteadyTime joined_at{};
  };

  [[nodiscard]] const Record* Find(const protocol::Member& member) const;
  Record* Find(const protocol::Member& member);
  Record& RecordOf(int slot);
  void TakeFinish(const protocol::JoinRequest& request);
  [[nodiscard]] bool HasFinishedTheNewest() const;
  [[nodiscard]] bool IsSuccess() const;  // of the newest round, by the members that finished it
  [[nodiscard]] bool IsFinished(const Record& record) const;
  void Move(Record& record, MemberState state);
  Admission Admit(const protocol::Member& member);
  void EndRound(protocol::LeaveMode mode, std::optional<protocol::FailureCause> cause, std::string reason,
                SteadyTime now);
  void Lose(Record& record, protocol::LeaveMode mode, Departure departure, SteadyTime now);
  void Adopt(const protocol::Heartbeat& heartbeat, Record& record, SteadyTime now);
  void ExpireSilent(SteadyTime now);
  void YieldToNewcomers(SteadyTime now);
  [[nodiscard]] bool GrowDelayIsOver(SteadyTime now);
  void CloseIfReady(SteadyTime now);
  void Close(std::string reason);
  [[nodiscard]] std::vector<Record*> Waiting();
  [[nodiscard]] std::vector<Record*> ChooseMembers();
  // Slots from this one on are surplus after a scale down.
  [[nodiscard]] int wanted_slots() const { return settings_.expected_members + settings_.standby_members; }
  [[nodiscard]] std::size_t MostEvictions() const {
    return Evictions::Most(static_cast<std::size_t>(wanted_slots()));
  }
  [[nodiscard]] std::chrono::milliseconds LastCall() const;
  [[nodiscard]] int Count(MemberState state) const { return counts_[state]; }
  [[nodiscard]] int MissingAlive() const;       // kLeft: their supervisors still answer
  [[nodiscard]] int MissingUnobserved() const;  // wanted slots whose member was never observed alive or dead

  JobSettings settings_;
  int64_t next_round_;
  int64_t revision_ = 0;
  std::map<int, Record> records_;           // by slot
  std::map<std::string, int> slot_of_pod_;  // by uid
  std::array<int, kMemberStates> counts_{};
  int seen_wanted_ = 0;       // records with a slot below wanted_slots(): members that were observed
  SteadyTime next_expiry_{};  // earliest time at which a member may count as silent
  SteadyTime next_growth_{};  // earliest time at which grow_delay may have passed for a newcomer
  Evictions evictions_;
  std::optional<ClosedRound> running_;
  bool adopted_ = false;  // running_ was adopted from heartbeats
  std::optional<Ending> last_ending_;
  SteadyTime last_change_{};  // of the waiting set: start of the last call
  // The members that finished a round, possibly under an earlier host.
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

#include "runtime/common/rendezvous/round.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace lockstep::rendezvous {
namespace {

using protocol::FailureCause;
using protocol::LeaveMode;
using protocol::LeaveReason;

std::string CountOf(int count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

bool HasAllRanks(const ClosedRound& round) {
  int ranks = 0;
  for (const Peer& peer : round.peers) ranks += peer.nproc;
  return ranks >= round.world;
}

Departure DepartureFrom(const protocol::LeaveRequest& request) {
  const protocol::RankFailure& failure = request.failure;
  if (request.reason != LeaveReason::kRankDied)
    return {.cause = FailureCause::kPreemption, .reason = request.detail};
  Departure departure{.ranks = failure.ranks,
                      .cause = failure.cause,
                      .reason = request.detail,
                      .detection_seconds = failure.detection_seconds,
                      .last_lines = failure.last_lines};
  if (failure.exit_code != 0) departure.exit_code = failure.exit_code;
  return departure;
}

// The member reported that it stops, or its heartbeats stopped; the end of its pod gives the cause.
void Complete(Departure& departure, const PodEnd& end) {
  if (departure.node.empty()) departure.node = end.node;
  if (departure.exit_code.has_value() || !end.exit_code.has_value()) return;
  departure.exit_code = end.exit_code;
  departure.cause = end.cause;
  departure.reason = end.reason;
}

}  // namespace

void Round::SetSettings(const JobSettings& settings) {
  next_round_ = std::max(next_round_, settings.first_round);
  settings_ = settings;
  seen_wanted_ = static_cast<int>(std::distance(records_.begin(), records_.lower_bound(wanted_slots())));
  next_expiry_ = {};
  next_growth_ = {};
}

Admission Round::Check(const protocol::Member& member) const {
  return evictions_.Contains(member) ? Admission::kEvicted : Admission::kAccepted;
}

// Pod names are unique per slot, so another uid or incarnation in the slot replaces the previous one for
// good.
Admission Round::Admit(const protocol::Member& member) {
  if (Check(member) == Admission::kEvicted) return Admission::kEvicted;
  const auto found = records_.find(member.slot);
  if (found == records_.end()) return Admission::kAccepted;
  const protocol::Member& known = found->second.request.member;
  if (known.pod_uid != member.pod_uid) {
    evictions_.AddPod(known.pod_uid, MostEvictions());
  } else if (known.incarnation != member.incarnation) {
    evictions_.AddSupervisor(known, MostEvictions());
  }
  return Admission::kAccepted;
}

const Round::Record* Round::Find(const protocol::Member& member) const {
  const auto found = records_.find(member.slot);
  if (found == records_.end()) return nullptr;
  const protocol::Member& known = found->second.request.member;
  return known.pod_uid == member.pod_uid && known.incarnation == member.incarnation ? &found->second
                                                                                    : nullptr;
}

Round::Record* Round::Find(const protocol::Member& member) {
  return const_cast<Record*>(std::as_const(*this).Find(member));
}

bool Round::Contains(const protocol::Member& member) const { return Find(member) != nullptr; }

Round::Record& Round::RecordOf(int slot) {
  const auto [found, is_new] = records_.try_emplace(slot);
  if (is_new) {
    ++counts_[found->second.state];
    seen_wanted_ += slot < wanted_slots() ? 1 : 0;
  }
  return found->second;
}

void Round::Move(Record& record, MemberState state) {
  --counts_[record.state];
  record.state = state;
  ++counts_[state];
}

Admission Round::Join(const protocol::JoinRequest& request, SteadyTime now) {
  if (Admit(request.member) == Admission::kEvicted) return Admission::kEvicted;
  if (request.finished.round > 0) TakeFinish(request);
  if (dismisses_) return Admission::kAccepted;  // the round is complete, regardless of who leaves it now
  Record* known = Find(request.member);
  if (known != nullptr && known->state == kInRound) {
    known->last_seen = now;
    // The previous answer was lost: the member is still in the running round.
    if (running_.has_value() && request.last_round < running_->number) return Admission::kAccepted;
    if (running_.has_value() && request.finished.round == running_->number) {
      known->request = request;  // needed if the round breaks before all members have finished
      return Admission::kAccepted;
    }
    EndRound(LeaveMode::kAbort, FailureCause::kInfrastructure,
             request.member.pod + " left the round without saying why", now);
  }
  Record& record = RecordOf(request.member.slot);
  if (known == nullptr) {
    Lose(record, LeaveMode::kAbort, {.cause = FailureCause::kInfrastructure, .reason = "it was replaced"},
         now);
    if (SlotOf(record.request.member.pod_uid) == request.member.slot)
      slot_of_pod_.erase(record.request.member.pod_uid);
  }
  if (known == nullptr || record.state != kWaiting) {
    record.joined_at = now;
    last_change_ = now;
    record.is_standby = running_.has_value() && Count(kInRound) >= places();
    if (running_.has_value()) ++revision_;
  }
  record.request = request;
  slot_of_pod_[request.member.pod_uid] = request.member.slot;
  Move(record, kWaiting);
  record.last_seen = now;
  return Admission::kAccepted;
}

void Round::TakeFinish(const protocol::JoinRequest& request) {
  const protocol::FinishedRound& finished = request.finished;
  if (finished.round < finished_.round) return;
  if (finished.round > finished_.round) finished_ = {.round = finished.round, .world = finished.world};
  if (finished_.slots.insert(request.member.slot).second) finished_.ranks += request.nproc;
  finished_.has_rank0 |= finished.first_rank == 0;
  if (completed_ || !HasFinishedTheNewest() || !IsSuccess()) return;
  completed_ = true;
  dismisses_ = finished_.ranks < finished_.world;
  ++revision_;
}

bool Round::HasFinishedTheNewest() const {
  if (running_.has_value()) return running_->number == finished_.round;
  // A member may come to its end before it yields.
  if (last_ending_.has_value())
    return last_ending_->mode == LeaveMode::kYield && last_ending_->round == finished_.round;
  return finished_.round >= newest_number();  // or one that only an earlier host knew
}

bool Round::IsSuccess() const {
  const bool all = finished_.ranks >= finished_.world;
  switch (settings_.success) {
    case SuccessRule::kAll: return all;
    case SuccessRule::kAny: return true;
    case SuccessRule::kRank0: return finished_.has_rank0;
  }
  return all;
}

bool Round::IsFinished(const Record& record) const {
  return record.state == kInRound && record.request.finished.round == running_->number;
}

Admission Round::Heartbeat(const protocol::Heartbeat& heartbeat, SteadyTime now) {
  if (Check(heartbeat.member) == Admission::kEvicted) return Admission::kEvicted;
  Record* record = Find(heartbeat.member);
  if (record != nullptr) {
    record->last_seen = now;
    return Admission::kAccepted;
  }
  if (CanAdopt(heartbeat)) Adopt(heartbeat, RecordOf(heartbeat.member.slot), now);
  return Admission::kAccepted;
}

// A standby repeats its join all the time. A member of this round joins only because the round is over.
bool Round::CanAdopt(const protocol::Heartbeat& heartbeat) const {
  if (heartbeat.round <= 0 || heartbeat.round < newest_number()) return false;
  if (last_ending_.has_value() && heartbeat.round <= last_ending_->round) return false;
  if (records_.contains(heartbeat.member.slot)) return false;
  if (running_.has_value()) return adopted_ && running_->number == heartbeat.round;
  return std::none_of(records_.begin(), records_.end(), [&](const auto& entry) {
    const protocol::JoinRequest& request = entry.second.request;
    return entry.second.state == kWaiting && request.last_round >= heartbeat.round &&
           request.finished.round != heartbeat.round;
  });
}

void Round::Adopt(const protocol::Heartbeat& heartbeat, Record& record, SteadyTime now) {
  if (!running_.has_value()) {
    adopted_ = true;
    running_ = ClosedRound{
        .number = heartbeat.round, .world = heartbeat.world, .reason = "adopted while it was running"};
    next_round_ = std::max(next_round_, heartbeat.round + 1);
  }
  record.request.job = heartbeat.job;
  record.request.member = heartbeat.member;
  slot_of_pod_[heartbeat.member.pod_uid] = heartbeat.member.slot;
  record.request.nproc = heartbeat.nproc;
  Move(record, kInRound);
  record.last_rank = heartbeat.first_rank;
  record.last_seen = now;
  ++revision_;
  const Peer peer{.pod = heartbeat.member.pod,
                  .pod_uid = heartbeat.member.pod_uid,
                  .slot = heartbeat.member.slot,
                  .first_rank = heartbeat.first_rank,
                  .nproc = heartbeat.nproc};
  std::vector<Peer>& peers = running_->peers;
  peers.insert(std::upper_bound(peers.begin(), peers.end(), peer,
                                [](const Peer& a, const Peer& b) { return a.first_rank < b.first_rank; }),
               peer);
}

Admission Round::Broken(const protocol::BrokenReport& report, SteadyTime now) {
  if (Check(report.member) == Admission::kEvicted) return Admission::kEvicted;
  Record* record = Find(report.member);
  if (record == nullptr) return Admission::kAccepted;
  record->last_seen = now;
  if (record->state != kInRound || !running_.has_value() || running_->number != report.round) {
    return Admission::kAccepted;  // the round is already over
  }
  EndRound(LeaveMode::kAbort, FailureCause::kInfrastructure, report.member.pod + ": " + report.reason, now);
  return Admission::kAccepted;
}

Admission Round::Leave(const protocol::LeaveRequest& request, SteadyTime now) {
  if (Check(request.member) == Admission::kEvicted) return Admission::kEvicted;
  if (request.reason == LeaveReason::kCompleted && !std::exchange(completed_, true)) ++revision_;
  Record* record = Find(request.member);
  if (record == nullptr) return Admission::kAccepted;
  record->last_seen = now;
  const bool hands_over = request.reason == LeaveReason::kHandingOver;
  // A member that is not in this round any more joins the next one before it leaves.
  const bool is_in_it =
      record->state == kInRound && running_.has_value() && running_->number == request.round;
  if (hands_over && !is_in_it) return Admission::kAccepted;
  // A pod that stops in good order completes its step; a pod with a dead rank cannot.
  const LeaveMode mode = request.reason == LeaveReason::kRankDied ? LeaveMode::kAbort : LeaveMode::kYield;
  Lose(*record, mode, DepartureFrom(request), now);
  if (hands_over) Move(*record, kLeft);
  return Admission::kAccepted;
}

std::optional<int> Round::SlotOf(const std::string& pod_uid) const {
  const auto slot = slot_of_pod_.find(pod_uid);
  return slot == slot_of_pod_.end() ? std::nullopt : std::optional(slot->second);
}

void Round::PodGone(const PodEnd& end, SteadyTime now) {
  if (!evictions_.AddPod(end.pod_uid, MostEvictions())) return;
  if (const auto slot = SlotOf(end.pod_uid)) {
    Record& record = records_.at(*slot);
    if (record.state != kDead)
      Lose(record, LeaveMode::kAbort, {.cause = end.cause, .reason = end.reason}, now);
  }
  if (!last_ending_.has_value()) return;
  for (Departure& departure : last_ending_->departures) {
    if (departure.pod_uid == end.pod_uid) Complete(departure, end);
  }
  ++revision_;
}

// The member has lost its place and is not waited for.
void Round::Lose(Record& record, LeaveMode mode, Departure departure, SteadyTime now) {
  const protocol::Member& member = record.request.member;
  const bool is_wanted = member.slot < wanted_slots();
  if (!completed_ && record.state == kInRound) {
    EndRound(mode, is_wanted ? std::optional(departure.cause) : std::nullopt,
             member.pod + ": " + departure.reason, now);
  }
  if (!completed_ && record.last_rank >= 0 && is_wanted) {
    departure.pod = member.pod;
    departure.pod_uid = member.pod_uid;
    departure.slot = member.slot;
    if (departure.ranks.empty()) {
      departure.ranks.resize(static_cast<std::size_t>(record.request.nproc));
      std::iota(departure.ranks.begin(), departure.ranks.end(), record.last_rank);
    }
    last_ending_->departures.push_back(std::move(departure));
    ++revision_;
  }
  Move(record, kDead);
  record.last_rank = -1;
  if (running_.has_value()) ++revision_;
  last_change_ = now;
}

void Round::EndRound(LeaveMode mode, std::optional<FailureCause> cause, std::string reason, SteadyTime now) {
  if (!running_.has_value()) return;
  const auto members = static_cast<int>(running_->peers.size());
  last_ending_ = Ending{running_->number, mode, cause, std::move(reason), members, {}};
  for (auto& [slot, record] : records_) {
    if (record.state != kInRound) continue;
    const bool asks_already = IsFinished(record);
    if (asks_already) record.joined_at = now;
    Move(record, asks_already ? kWaiting : kLeft);
  }
  running_.reset();
  if (mode != LeaveMode::kYield) finished_ = {};
  ++revision_;
  adopted_ = false;
  last_change_ = now;
}

void Round::ExtendTimeouts(SteadyTime::duration pause) {
  for (auto& [slot, record] : records_) record.last_seen += pause;
  last_change_ += pause;
}

void Round::Tick(SteadyTime now) {
  ExpireSilent(now);
  if (completed_) return;
  if (running_.has_value()) {
    YieldToNewcomers(now);
  } else {
    CloseIfReady(now);
  }
}

std::vector<std::string> Round::ResponsivePods() const {
  std::vector<std::string> pods;
  for (const auto& [slot, record] : records_) {
    if (record.state != kDead) pods.push_back(record.request.member.pod_uid);
  }
  return pods;
}

void Round::ExpireSilent(SteadyTime now) {
  if (now < next_expiry_) return;
  next_expiry_ = now + settings_.heartbeat_timeout;
  for (auto& [slot, record] : records_) {
    if (record.state == kDead) continue;
    if (now - record.last_seen <= settings_.heartbeat_timeout) {
      next_expiry_ = std::min(next_expiry_, record.last_seen + settings_.heartbeat_timeout);
      continue;
    }
    Lose(record, LeaveMode::kAbort,
         {.cause = FailureCause::kInfrastructure,
          .reason = "no heartbeat",
          .detection_seconds = Seconds(now - record.last_seen).count()},
         now);
  }
}

void Round::YieldToNewcomers(SteadyTime now) {
  const int newcomers = Count(kWaiting);
  if (newcomers == 0 || Count(kInRound) >= places()) return;
  if (finished_.round == running_->number) return;  // it is about to complete, and its work would be lost
  // The round was adopted from heartbeats, and some are still missing.
  if (adopted_ && !HasAllRanks(*running_)) return;
  const bool all_here = Count(kInRound) + newcomers >= places();
  if (!all_here && !GrowDelayIsOver(now)) return;
  EndRound(LeaveMode::kYield, std::nullopt, CountOf(newcomers, "newcomer") + " waiting", now);
}

bool Round::GrowDelayIsOver(SteadyTime now) {
  if (now < next_growth_) return false;
  SteadyTime first_join = SteadyTime::max();
  for (const Record* newcomer : Waiting()) first_join = std::min(first_join, newcomer->joined_at);
  next_growth_ = first_join + settings_.grow_delay;
  return now >= next_growth_;
}

std::optional<int> Round::FirstRankOf(int slot) const {
  const auto found = records_.find(slot);
  if (found == records_.end() || found->second.state != kInRound || IsFinished(found->second))
    return std::nullopt;
  return found->second.last_rank;
}

}  // namespace lockstep::rendezvous

#include "runtime/common/rendezvous/round.h"

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

using protocol::LeaveMode;
using protocol::LeaveReason;

std::string IncarnationKey(const protocol::Member& member) {
  return member.pod_uid + "/" + member.incarnation;
}

std::string CountOf(int count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

void Round::SetSettings(const JobSettings& settings) {
  next_round_ = std::max(next_round_, settings.first_round);
  settings_ = settings;
}

Admission Round::Check(const protocol::Member& member) const {
  const bool evicted = evicted_.contains(member.pod_uid) || evicted_.contains(IncarnationKey(member));
  return evicted ? Admission::kEvicted : Admission::kAccepted;
}

// Pod names are unique per slot, so another uid or incarnation in the slot replaces the one before it for
// good.
Admission Round::Admit(const protocol::Member& member) {
  if (Check(member) == Admission::kEvicted) return Admission::kEvicted;
  const auto found = records_.find(member.slot);
  if (found == records_.end()) return Admission::kAccepted;
  const protocol::Member& known = found->second.request.member;
  if (known.pod_uid != member.pod_uid) evicted_.insert(known.pod_uid);
  if (known.pod_uid == member.pod_uid && known.incarnation != member.incarnation) {
    evicted_.insert(IncarnationKey(known));
  }
  return Admission::kAccepted;
}

Round::Record* Round::Find(const protocol::Member& member) {
  const auto found = records_.find(member.slot);
  if (found == records_.end()) return nullptr;
  const protocol::Member& known = found->second.request.member;
  return known.pod_uid == member.pod_uid && known.incarnation == member.incarnation ? &found->second
                                                                                    : nullptr;
}

Admission Round::Join(const protocol::JoinRequest& request, SteadyTime now) {
  if (Admit(request.member) == Admission::kEvicted) return Admission::kEvicted;
  Record* known = Find(request.member);
  if (known != nullptr && known->standing == Standing::kInRound) {
    known->last_seen = now;
    // The answer was lost on its way: it is still in the running round.
    if (running_.has_value() && request.last_round < running_->number) return Admission::kAccepted;
    EndRound(LeaveMode::kAbort, "Infrastructure", request.member.pod + " left the round without saying why",
             {request.member.pod}, now);
  }
  Record& record = records_[request.member.slot];
  if (known == nullptr && record.standing == Standing::kInRound) {
    EndRound(LeaveMode::kAbort, "Infrastructure", record.request.member.pod + " was replaced",
             {record.request.member.pod}, now);
  }
  if (known == nullptr) record.last_rank = -1;
  if (known == nullptr || record.standing != Standing::kWaiting) {
    record.joined_at = now;
    last_change_ = now;
  }
  record.request = request;
  record.standing = Standing::kWaiting;
  record.last_seen = now;
  return Admission::kAccepted;
}

Admission Round::Heartbeat(const protocol::Heartbeat& heartbeat, SteadyTime now) {
  if (Check(heartbeat.member) == Admission::kEvicted) return Admission::kEvicted;
  Record* record = Find(heartbeat.member);
  if (record != nullptr) {
    record->last_seen = now;
    return Admission::kAccepted;
  }
  const bool unknown_slot = !records_.contains(heartbeat.member.slot);
  const bool can_adopt = heartbeat.round > 0 && unknown_slot && Count(Standing::kWaiting) == 0 &&
                         (!running_.has_value() || (adopted_ && running_->number == heartbeat.round)) &&
                         heartbeat.round >= newest_number();
  if (can_adopt) Adopt(heartbeat, records_[heartbeat.member.slot], now);
  return Admission::kAccepted;
}

void Round::Adopt(const protocol::Heartbeat& heartbeat, Record& record, SteadyTime now) {
  if (!running_.has_value()) {
    adopted_ = true;
    running_ =
        ClosedRound{.number = heartbeat.round, .world = heartbeat.world, .reason = "taken over as it runs"};
    next_round_ = std::max(next_round_, heartbeat.round + 1);
  }
  record.request.job = heartbeat.job;
  record.request.member = heartbeat.member;
  record.request.nproc = heartbeat.nproc;
  record.standing = Standing::kInRound;
  record.last_rank = heartbeat.first_rank;
  record.last_seen = now;
  running_->peers.push_back({.pod = heartbeat.member.pod,
                             .slot = heartbeat.member.slot,
                             .first_rank = heartbeat.first_rank,
                             .nproc = heartbeat.nproc});
  std::sort(running_->peers.begin(), running_->peers.end(),
            [](const auto& a, const auto& b) { return a.first_rank < b.first_rank; });
}

Admission Round::Broken(const protocol::BrokenReport& report, SteadyTime now) {
  if (Check(report.member) == Admission::kEvicted) return Admission::kEvicted;
  Record* record = Find(report.member);
  if (record == nullptr) return Admission::kAccepted;
  record->last_seen = now;
  if (record->standing != Standing::kInRound || !running_.has_value() || running_->number != report.round) {
    return Admission::kAccepted;  // the round is over already
  }
  EndRound(LeaveMode::kAbort, "Infrastructure", report.member.pod + ": " + report.reason, {}, now);
  return Admission::kAccepted;
}

Admission Round::Leave(const protocol::LeaveRequest& request, SteadyTime now) {
  if (Check(request.member) == Admission::kEvicted) return Admission::kEvicted;
  if (request.reason == LeaveReason::kCompleted) completed_ = true;
  Record* record = Find(request.member);
  if (record == nullptr) return Admission::kAccepted;
  record->last_seen = now;
  if (record->standing == Standing::kInRound && request.reason != LeaveReason::kCompleted) {
    // A pod that stops in good order finishes its step; one whose rank died cannot.
    const bool stopping = request.reason == LeaveReason::kStopping;
    EndRound(stopping ? LeaveMode::kYield : LeaveMode::kAbort, stopping ? "Preemption" : "Infrastructure",
             request.member.pod + ": " + request.detail, {request.member.pod}, now);
  } else if (last_ending_.has_value() && record->standing == Standing::kLeft) {
    last_ending_->pods.push_back(request.member.pod);
  }
  record->standing = Standing::kDead;
  last_change_ = now;
  return Admission::kAccepted;
}

void Round::PodGone(const std::string& pod_uid, const std::string& reason, SteadyTime now) {
  if (!evicted_.insert(pod_uid).second) return;
  for (auto& [slot, record] : records_) {
    if (record.request.member.pod_uid != pod_uid || record.standing == Standing::kDead) continue;
    const std::string& pod = record.request.member.pod;
    if (record.standing == Standing::kInRound && !completed_) {
      EndRound(LeaveMode::kAbort, "Infrastructure", pod + ": " + reason, {pod}, now);
    } else if (record.standing == Standing::kLeft && last_ending_.has_value()) {
      last_ending_->pods.push_back(pod);
    }
    record.standing = Standing::kDead;
    last_change_ = now;
  }
}

void Round::EndRound(LeaveMode mode, std::string cause, std::string reason, std::vector<std::string> pods,
                     SteadyTime now) {
  if (!running_.has_value()) return;
  last_ending_ = Ending{running_->number, mode, std::move(cause), std::move(reason), std::move(pods)};
  running_.reset();
  adopted_ = false;
  last_change_ = now;
  for (auto& [slot, record] : records_) {
    if (record.standing == Standing::kInRound) record.standing = Standing::kLeft;
  }
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

void Round::ExpireSilent(SteadyTime now) {
  for (auto& [slot, record] : records_) {
    if (record.standing == Standing::kDead || now - record.last_seen <= settings_.heartbeat_timeout) continue;
    const std::string& pod = record.request.member.pod;
    if (record.standing == Standing::kInRound) {
      EndRound(LeaveMode::kAbort, "Infrastructure", pod + ": no heartbeat", {pod}, now);
    }
    record.standing = Standing::kDead;
    last_change_ = now;
  }
}

void Round::YieldToNewcomers(SteadyTime now) {
  const int in_round = Count(Standing::kInRound);
  std::vector<Record*> newcomers = Waiting();
  if (newcomers.empty() || in_round >= settings_.max_members) return;
  SteadyTime first_join = SteadyTime::max();
  for (const Record* newcomer : newcomers) first_join = std::min(first_join, newcomer->joined_at);
  const bool all_here = in_round + static_cast<int>(newcomers.size()) >= settings_.expected_members;
  if (!all_here && now - first_join < settings_.grow_delay) return;
  EndRound(LeaveMode::kYield, "Scale", CountOf(static_cast<int>(newcomers.size()), "newcomer") + " waiting",
           {}, now);
}

void Round::CloseIfReady(SteadyTime now) {
  const int waiting = Count(Standing::kWaiting);
  if (waiting == 0 || MissingAlive() > 0) return;
  if (waiting >= std::min(settings_.expected_members, settings_.max_members)) {
    return Close("all expected members are in");
  }
  if (waiting < settings_.min_members) return;
  if (MissingUnseen() == 0) return Close("every missing member is known to be gone");
  if (now - last_change_ >= settings_.last_call) Close("the last call has passed");
}

void Round::Close(std::string reason) {
  std::vector<Record*> members = Waiting();
  // Survivors first, in their order; then newcomers by slot (Waiting() is in slot order).
  std::stable_sort(members.begin(), members.end(), [](const Record* a, const Record* b) {
    const auto key = [](const Record* r) { return r->last_rank < 0 ? INT32_MAX : r->last_rank; };
    return key(a) < key(b);
  });
  if (static_cast<int>(members.size()) > settings_.max_members) {
    members.resize(static_cast<std::size_t>(settings_.max_members));
  }
  ClosedRound closed{.number = next_round_++, .reason = std::move(reason)};
  for (Record* record : members) {
    record->standing = Standing::kInRound;
    record->last_rank = closed.world;
    const protocol::JoinRequest& request = record->request;
    closed.peers.push_back({.pod = request.member.pod,
                            .slot = request.member.slot,
                            .address = request.address,
                            .first_rank = closed.world,
                            .nproc = request.nproc});
    closed.world += request.nproc;
    closed.newest_step = std::max(closed.newest_step, request.step);
  }
  closed.store_host = members.front()->request.address;
  closed.store_port = members.front()->request.store_port;
  running_ = std::move(closed);
}

std::vector<Round::Record*> Round::Waiting() {
  std::vector<Record*> waiting;
  for (auto& [slot, record] : records_) {
    if (record.standing == Standing::kWaiting) waiting.push_back(&record);
  }
  return waiting;
}

int Round::Count(Standing standing) const {
  return static_cast<int>(std::count_if(records_.begin(), records_.end(), [standing](const auto& entry) {
    return entry.second.standing == standing;
  }));
}

int Round::MissingAlive() const { return Count(Standing::kLeft); }

int Round::MissingUnseen() const {
  int unseen = 0;
  for (int slot = 0; slot < settings_.expected_members; ++slot) unseen += records_.contains(slot) ? 0 : 1;
  return unseen;
}

std::string Round::WaitingReason() const {
  if (completed_) return "completed";
  if (running_.has_value()) return "";
  const int waiting = Count(Standing::kWaiting);
  if (MissingAlive() > 0) return "waiting for " + CountOf(MissingAlive(), "member") + " of the last round";
  if (waiting < settings_.min_members) {
    return std::to_string(waiting) + " of at least " + CountOf(settings_.min_members, "member") + " are in";
  }
  return "last call for " + CountOf(MissingUnseen(), "member");
}

}  // namespace lockstep::rendezvous

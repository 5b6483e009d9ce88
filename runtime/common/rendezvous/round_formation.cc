// When a round is formed, and of which members.
#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/common/rendezvous/round.h"

namespace lockstep::rendezvous {

void Round::CloseIfReady(SteadyTime now) {
  const int waiting = Count(kWaiting);
  if (waiting == 0 || places() == 0 || MissingAlive() > 0) return;
  if (waiting >= places()) {
    return Close("all expected members are in");
  }
  if (waiting < settings_.min_members) return;
  if (MissingUnobserved() == 0) return Close("every missing member is known to be gone");
  if (now - last_change_ >= LastCall()) Close("the last call has passed");
}

// After a restart of the host, members of a running round need the time of a heartbeat to report it.
std::chrono::milliseconds Round::LastCall() const {
  const bool may_run_already = settings_.first_round > 1 && !last_ending_.has_value();
  return may_run_already ? std::max(settings_.last_call, settings_.heartbeat_timeout) : settings_.last_call;
}

// In order of rank.
std::vector<Round::Record*> Round::ChooseMembers() {
  const auto rank_order = [](const Record* record) {
    const int group = record->last_rank >= 0 ? 0 : record->is_standby ? 1 : 2;
    return std::tuple(group, record->last_rank, record->request.member.slot);
  };
  const auto before = [&](const Record* a, const Record* b) { return rank_order(a) < rank_order(b); };
  std::vector<Record*> members = Waiting();
  const auto unwanted = std::partition(members.begin(), members.end(), [&](const Record* record) {
    return record->request.member.slot < wanted_slots();
  });
  std::sort(members.begin(), unwanted, before);
  if (static_cast<int>(members.size()) > places()) members.resize(static_cast<std::size_t>(places()));
  std::sort(members.begin(), members.end(), before);
  return members;
}

void Round::Close(std::string reason) {
  const std::vector<Record*> members = ChooseMembers();
  // Members may have formed a round again while no host answered: their number is then ahead.
  for (const Record* record : members) next_round_ = std::max(next_round_, record->request.last_round + 1);
  for (auto& [slot, record] : records_) {
    record.last_rank = -1;
    record.is_standby = record.state == kWaiting;
  }
  ClosedRound closed{.number = next_round_++, .reason = std::move(reason)};
  for (Record* record : members) {
    Move(*record, kInRound);
    record->is_standby = false;
    record->last_rank = closed.world;
    const protocol::JoinRequest& request = record->request;
    closed.peers.push_back({.pod = request.member.pod,
                            .pod_uid = request.member.pod_uid,
                            .slot = request.member.slot,
                            .first_rank = closed.world,
                            .nproc = request.nproc,
                            .holds_state = request.step >= 0});
    closed.hosts.push_back(request.address);
    closed.world += request.nproc;
    closed.newest_step = std::max(closed.newest_step, request.step);
  }
  closed.store_host = members.front()->request.address;
  closed.store_port = members.front()->request.store_port;
  closed.form_port = members.front()->request.form_port;
  closed.form_key = members.front()->request.form_key;
  running_ = std::move(closed);
  ++revision_;
}

std::vector<Round::Record*> Round::Waiting() {
  std::vector<Record*> waiting;
  for (auto& [slot, record] : records_) {
    if (record.state == kWaiting) waiting.push_back(&record);
  }
  return waiting;
}

int Round::MissingAlive() const { return Count(kLeft); }

int Round::MissingUnobserved() const { return wanted_slots() - seen_wanted_; }

}  // namespace lockstep::rendezvous

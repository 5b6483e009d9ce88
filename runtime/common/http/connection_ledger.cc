#include "runtime/common/http/connection_ledger.h"

#include <algorithm>
#include <utility>

#include "runtime/common/base/log.h"

namespace lockstep::http {
namespace {

// Reserved for files and connections other than those that a server accepts.
constexpr std::size_t kOtherFiles = 256;
// How many of these are for connections that replace others which are still to be closed.
constexpr std::size_t kDisplacedAtOnce = 64;

ConnectionLimits Bounded(ConnectionLimits limits, std::size_t open_files) {
  limits.all = std::min(limits.all, std::max(open_files / 2, open_files - std::min(open_files, kOtherFiles)));
  return limits;
}

}  // namespace

ConnectionLedger::Place::Place(Place&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      peer_(std::move(other.peer_)),
      number_(other.number_),
      is_trusted_(other.is_trusted_.load()) {}

ConnectionLedger::Place::~Place() {
  if (ledger_ != nullptr) ledger_->End(*this);
}

void ConnectionLedger::Place::Trust() {
  if (!is_trusted_.exchange(true)) ledger_->Trust(*this);
}

ConnectionLedger::ConnectionLedger(const ConnectionLimits& limits, std::size_t open_files)
    : limits_(Bounded(limits, open_files)) {}

bool ConnectionLedger::MayConnect(const std::string& peer) {
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return true;
  Count& count = found->second;
  if (count.all < limits_.per_peer && count.untrusted < limits_.untrusted_per_peer) return true;
  if (!std::exchange(count.is_refused, true))
    log::Warning("too many connections: further ones of this address are refused",
                 {{"address", peer}, {"connections", count.all}, {"untrusted", count.untrusted}});
  return false;
}

std::function<void()> ConnectionLedger::Displace() {
  if (!std::exchange(is_full_, true))
    log::Warning(
        "too many connections: the oldest without an authorised request are closed, and where all have "
        "one, further connections are refused",
        {{"connections", all_}, {"untrusted", untrusted_.size()}});
  const auto oldest = untrusted_.begin();
  if (oldest == untrusted_.end() || displaced_.size() >= kDisplacedAtOnce) return {};
  displaced_.insert(oldest->first);
  auto close = std::move(oldest->second);
  untrusted_.erase(oldest);
  return close;
}

ConnectionLedger::Place ConnectionLedger::Admit(const std::string& peer, std::function<void()> close) {
  Place place;
  place.peer_ = peer;
  std::function<void()> close_oldest;
  {
    const MutexLock lock(mutex_);
    if (!MayConnect(peer)) return {};
    if (all_ - displaced_.size() >= limits_.all) {
      close_oldest = Displace();
      if (!close_oldest) return {};
    }
    Count& count = by_peer_[peer];
    untrusted_.emplace(next_number_, std::move(close));
    place.number_ = next_number_++;
    place.ledger_ = this;
    ++all_;
    ++count.all;
    ++count.untrusted;
  }
  if (close_oldest) close_oldest();
  return place;
}

void ConnectionLedger::Trust(const Place& place) {
  const MutexLock lock(mutex_);
  untrusted_.erase(place.number_);
  --by_peer_.at(place.peer_).untrusted;
}

void ConnectionLedger::End(const Place& place) {
  const MutexLock lock(mutex_);
  untrusted_.erase(place.number_);
  displaced_.erase(place.number_);
  if (--all_ <= limits_.all / 2) is_full_ = false;
  const auto found = by_peer_.find(place.peer_);
  if (!place.is_trusted_) --found->second.untrusted;
  if (--found->second.all == 0) by_peer_.erase(found);
}

}  // namespace lockstep::http

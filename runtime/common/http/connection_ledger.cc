#include "runtime/common/http/connection_ledger.h"

#include <algorithm>
#include <utility>

#include "runtime/common/base/log.h"

namespace lockstep::http {
namespace {

// For files and connections of other kinds than those that a server accepts.
constexpr std::size_t kOtherFiles = 256;

ConnectionLimits Bounded(ConnectionLimits limits, std::size_t open_files) {
  limits.all = std::min(limits.all, std::max(open_files / 2, open_files - std::min(open_files, kOtherFiles)));
  return limits;
}

}  // namespace

ConnectionLedger::Place::Place(Place&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      peer_(std::move(other.peer_)),
      is_trusted_(other.is_trusted_) {}

ConnectionLedger::Place::~Place() {
  if (ledger_ != nullptr) ledger_->End(peer_, is_trusted_);
}

void ConnectionLedger::Place::Trust() {
  if (!std::exchange(is_trusted_, true)) ledger_->Trust(peer_);
}

ConnectionLedger::ConnectionLedger(const ConnectionLimits& limits, std::size_t open_files)
    : limits_(Bounded(limits, open_files)) {}

ConnectionLedger::Place ConnectionLedger::Admit(const std::string& peer) {
  const MutexLock lock(mutex_);
  if (all_ >= limits_.all) {
    if (!std::exchange(is_full_, true))
      log::Warning("too many connections: further ones are refused", {{"connections", all_}});
    return {};
  }
  Count& count = by_peer_[peer];
  if (count.all < limits_.per_peer && count.untrusted < limits_.untrusted_per_peer) {
    ++all_;
    ++count.all;
    ++count.untrusted;
    return {*this, peer};
  }
  if (!std::exchange(count.is_refused, true)) {
    log::Warning("too many connections: further ones of this address are refused",
                 {{"address", peer}, {"connections", count.all}, {"untrusted", count.untrusted}});
  }
  return {};
}

void ConnectionLedger::Trust(const std::string& peer) {
  const MutexLock lock(mutex_);
  --by_peer_.at(peer).untrusted;
}

void ConnectionLedger::End(const std::string& peer, bool is_trusted) {
  const MutexLock lock(mutex_);
  const auto found = by_peer_.find(peer);
  if (--all_ <= limits_.all / 2) is_full_ = false;
  if (!is_trusted) --found->second.untrusted;
  if (--found->second.all == 0) by_peer_.erase(found);
}

}  // namespace lockstep::http

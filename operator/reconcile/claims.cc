#include "operator/reconcile/claims.h"

#include <algorithm>

namespace lockstep::reconcile {
namespace {

// With the default duration, five minutes: longer than an operator needs to be replaced.
constexpr int kDurations = 20;
// Observations of Leases that no job names any more are dropped.
constexpr std::chrono::minutes kKept{10};

// The annotation may be written by others; anything else would be another path of the API server.
bool IsName(const kube::ObjectKey& key) {
  const auto is_plain = [](const std::string& name) {
    return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    });
  };
  return is_plain(key.name_space) && is_plain(key.name);
}

// The duration in a Lease without a holder is not that of its installation (shard_table.cc).
std::chrono::seconds DurationOf(const kube::LeaseRecord& lease) {
  return std::chrono::seconds(lease.holder.empty() ? kube::LeaseRecord().duration_seconds
                                                   : lease.duration_seconds);
}

}  // namespace

bool Claims::IsAbandoned(const std::string& installation) {
  const SteadyTime now = clock_.Steady();
  {
    const MutexLock lock(mutex_);
    std::erase_if(observed_, [now](const auto& entry) { return now - entry.second.read > kKept; });
    const auto found = observed_.find(installation);
    // Its operators may have returned since an earlier read.
    const bool is_known = found != observed_.end() && !found->second.is_abandoned;
    if (is_known && now - found->second.read < kPeriod) return false;
  }
  const std::optional<kube::LeaseRecord> lease = Read(installation);  // without the lock
  const MutexLock lock(mutex_);
  const auto [found, is_new] = observed_.try_emplace(installation);
  Observation& known = found->second;
  known.read = now;
  if (is_new || !lease || known.renewed != lease->renew_time) known.since = now;
  known.renewed = lease ? lease->renew_time : "";
  known.is_abandoned = lease && (now - known.since) / kDurations >= DurationOf(*lease);
  return known.is_abandoned;
}

std::optional<kube::LeaseRecord> Claims::Read(const std::string& installation) const {
  const kube::ObjectKey key = kube::KeyFromString(installation);
  if (!IsName(key)) return std::nullopt;
  const auto lease = client_.Get(kube::kLeases, key);
  if (lease.ok()) return kube::LeaseRecordFromJson(*lease);
  if (lease.error().code == ErrorCode::kNotFound) return kube::LeaseRecord();
  return std::nullopt;
}

}  // namespace lockstep::reconcile

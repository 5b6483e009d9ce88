#include "operator/sharding/shard_lease.h"

#include <algorithm>
#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::sharding {
namespace {

// Attempts for one update if other replicas write between the read and the write.
constexpr int kAttempts = 5;

bool IsLostRace(const Error& error) {
  return error.code == ErrorCode::kConflict || error.code == ErrorCode::kAlreadyExists;
}

}  // namespace

ShardLease::ShardLease(kube::KubeClient& client, const Clock& clock, ShardLeaseOptions options)
    : client_(client), clock_(clock), options_(std::move(options)) {}

bool ShardLease::Join(const std::string& address, const std::stop_token& stop) {
  address_ = address;
  std::string last_error;
  while (!stop.stop_requested()) {
    deadline_ = clock_.Steady() + options_.timings.renew_deadline;
    const auto joined = Look();
    if (joined.ok() && *joined) {
      watch_ = std::jthread([this](const std::stop_token& released) { Watch(released); });
      return true;
    }
    if (!joined.ok() && std::exchange(last_error, joined.error().ToString()) != joined.error().ToString()) {
      log::Warning("cannot join the lease yet",
                   {{"lease", options_.lease.ToString()}, {"error", last_error}});
    }
    PauseFor(options_.timings.look_period, stop);
  }
  return false;
}

Result<void> ShardLease::Keep(const std::stop_token& stop) {
  std::string last_error;
  while (PauseFor(options_.timings.look_period, stop)) {
    const auto kept = Look();
    if (!kept.ok() && kept.error().code == ErrorCode::kAborted) return kept.error();
    const std::string error = kept.ok() ? "" : kept.error().ToString();
    if (std::exchange(last_error, error) != error && !error.empty()) {
      log::Warning("cannot renew the lease", {{"lease", options_.lease.ToString()}, {"error", error}});
    }
  }
  return {};
}

void ShardLease::Leave() {
  watch_ = {};
  is_replica_ = false;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    deadline_ = clock_.Steady() + options_.timings.renew_deadline;
    const auto lease = Read();
    if (!lease.ok()) return;
    ShardTable table = TableFromLease(*lease);
    if (table.replicas.erase(options_.identity) == 0) return;
    Free(ShardsOf(table, options_.identity), table);
    const auto written = Write(*lease, table);
    if (written.ok()) return;
    if (IsLostRace(written.error())) continue;
    return log::Warning("could not leave the lease", {{"error", written.error().ToString()}});
  }
}

Milliseconds ShardLease::RequestTime() const {
  return std::min(std::chrono::duration_cast<Milliseconds>(TimeLeft()), options_.timings.renew_deadline / 2);
}

std::string ShardLease::AddressOf(std::size_t shard) const {
  const MutexLock lock(mutex_);
  const std::string& holder = published_.holders.at(shard);
  const auto found = published_.replicas.find(holder);
  return found == published_.replicas.end() || holder == options_.identity ? "" : found->second.address;
}

std::vector<std::string> ShardLease::Replicas() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> identities;
  identities.reserve(published_.replicas.size());
  for (const auto& [identity, replica] : published_.replicas) identities.push_back(identity);
  return identities;
}

std::set<std::string> ShardLease::AuthoritiesOfOthers() const {
  const MutexLock lock(mutex_);
  std::set<std::string> authorities;
  for (const auto& [identity, replica] : published_.replicas) {
    if (identity != options_.identity && !replica.authorities.empty())
      authorities.insert(replica.authorities);
  }
  return authorities;
}

Result<bool> ShardLease::Look() {
  Result<bool> looked = false;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    looked = Try();
    if (looked.ok() || !IsLostRace(looked.error())) break;
  }
  return looked;
}

Result<bool> ShardLease::Try() {
  // Other replicas count from the moment at which they observe the renewal, which is never before this one.
  const SteadyTime begin = clock_.Steady();
  LOCKSTEP_TRY(const Json lease, Read());
  const ShardTable table = TableFromLease(lease);
  observer_.Observe(table, clock_.Steady());
  Publish(table);
  if (is_replica_ && IsLost(table)) {
    return Error{ErrorCode::kAborted,
                 "no longer among the holders of the lease " + options_.lease.ToString()};
  }
  ShardTable next = WithoutTheDead(table, observer_, options_.identity);
  if (next.is_sole_leader) {
    const std::string& leader = next.replicas.begin()->first;
    if (std::exchange(waited_for_, leader) != leader)
      log::Info("waiting for an operator that leads all jobs by itself", {{"holder", leader}});
    return false;
  }
  next.replicas.try_emplace(options_.identity);
  if (options_.is_pod && !is_replica_) Inherit(options_.identity, next);
  const ShardSet surplus = SurplusOf(next, options_.identity);
  WorkOn(open_ & ~surplus);
  Free(surplus & ~worked_on_, next);
  TakeFree(options_.identity, next);
  const bool is_due = begin - renewed_at_ >= options_.timings.retry_period;
  if (!is_replica_ || is_due || next != table) {
    next.replicas[options_.identity] = {
        .renewed = FormatMicroTime(clock_.Now()),
        .duration_seconds =
            std::chrono::duration_cast<std::chrono::seconds>(options_.timings.duration).count(),
        .address = address_,
        .authorities = options_.authorities()};
    LOCKSTEP_TRY(Write(lease, next));
    if (TimeLeft() <= SteadyTime::duration::zero()) {
      return Error{ErrorCode::kDeadlineExceeded, "the answer came after the renew deadline"};
    }
    deadline_ = begin + options_.timings.renew_deadline;
    renewed_at_ = begin;
    is_replica_ = true;
    Publish(next);
  }
  WorkOn(ShardsOf(next, options_.identity) & ~surplus);
  return true;
}

// Shards in use here may be freed only by this process. Further shards that the table assigns to it come from
// a write whose answer was lost.
bool ShardLease::IsLost(const ShardTable& table) const {
  return table.is_sole_leader || !table.replicas.contains(options_.identity) ||
         (worked_on_ & ~ShardsOf(table, options_.identity)).any();
}

void ShardLease::WorkOn(const ShardSet& shards) {
  open_ = shards;
  worked_on_ = options_.work_on(shards);
}

Result<Json> ShardLease::Read() {
  auto lease = client_.Get(kube::kLeases, options_.lease);
  if (lease.ok() || lease.error().code != ErrorCode::kNotFound) return lease;
  return Json{{"metadata", {{"namespace", options_.lease.name_space}, {"name", options_.lease.name}}}};
}

Result<void> ShardLease::Write(Json lease, const ShardTable& table) {
  PutTable(table, options_.timings, clock_.Now(), lease);
  // With the resourceVersion in the metadata, Replace fails if another replica has written meanwhile.
  const auto written = lease["metadata"].contains("resourceVersion") ? client_.Replace(kube::kLeases, lease)
                                                                     : client_.Create(kube::kLeases, lease);
  return written.ok() ? Result<void>() : Result<void>(written.error());
}

void ShardLease::Publish(const ShardTable& table) {
  const MutexLock lock(mutex_);
  published_ = table;
}

void ShardLease::Watch(const std::stop_token& stop) const {
  while (!stop.stop_requested()) {
    const auto left = std::chrono::ceil<Milliseconds>(TimeLeft());
    if (left <= Milliseconds::zero()) return options_.on_expired();
    PauseFor(std::min(left, options_.timings.retry_period), stop);
  }
}

}  // namespace lockstep::sharding

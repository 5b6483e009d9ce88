#pragma once
// The loop around shard_assignment.h: join the table of replicas, stay in it, take and hand over shards,
// leave. Owned by main and called by one thread at a time. A process that is no longer in the table must exit
// (see shard_assignment.h), so Keep cannot be followed by another Join.
//
// From Join to Leave a separate thread watches the renew deadline, so that a hanging request cannot keep a
// replica working on shards that others may take.

#include <array>
#include <atomic>
#include <functional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "operator/kube/client.h"
#include "operator/kube/lease.h"
#include "operator/sharding/shard_assignment.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::sharding {

struct ShardLeaseOptions {
  kube::ObjectKey lease;
  std::string identity;
  bool is_pod = false;  // the identity names a pod, of which only the newest process is alive
  // Limits work to these shards. Returns the shards in use: these, and others until their last work has
  // ended. Called by the thread that calls Join and Keep; must not block.
  std::function<ShardSet(const ShardSet&)> work_on;
  // Called on the watching thread when the lease was not renewed within the renew deadline. It must end the
  // process.
  std::function<void()> on_expired;
  // The authorities of the certificate that this process serves now, PEM. Called like work_on.
  std::function<std::string()> authorities = [] { return std::string(); };
  kube::LeaseTimings timings;
};

class ShardLease {
 public:
  ShardLease(kube::KubeClient& client, const Clock& clock, ShardLeaseOptions options);

  // Blocks until this process is one of the replicas (true) or `stop` (false). `address`: of its rendezvous
  // server, which other replicas return to callers.
  [[nodiscard]] bool Join(const std::string& address, const std::stop_token& stop);
  // Renews, takes and hands over until `stop`. Returns an error if the table no longer contains this process.
  [[nodiscard]] Result<void> Keep(const std::stop_token& stop);
  // Frees the shards, so that other replicas need not wait for the expiry. Call once nothing is written any
  // more.
  void Leave();
  // The time limit for a request of this class, including its repeats and waits: until the renew deadline,
  // but at most half of it, so that after a lost connection there is time for a second request. Any thread.
  [[nodiscard]] Milliseconds RequestTime() const;
  // The address of the replica that holds the shard, as last read; empty if it is this one, or none. Any
  // thread.
  [[nodiscard]] std::string AddressOf(std::size_t shard) const;
  // The replicas, as last read. Any thread.
  [[nodiscard]] std::vector<std::string> Replicas() const;
  // The authorities of the certificates that other replicas serve, as last read. Any thread.
  [[nodiscard]] std::set<std::string> AuthoritiesOfOthers() const;

 private:
  // True if this process is one of the replicas now. kAborted: it no longer is.
  [[nodiscard]] Result<bool> Look();
  [[nodiscard]] Result<bool> Try();
  [[nodiscard]] bool IsLost(const ShardTable& table) const;
  void WorkOn(const ShardSet& shards);
  [[nodiscard]] Result<Json> Read();
  [[nodiscard]] Result<void> Write(Json lease, const ShardTable& table);
  void Publish(const ShardTable& table);
  [[nodiscard]] SteadyTime::duration TimeLeft() const { return deadline_.load() - clock_.Steady(); }
  void Watch(const std::stop_token& stop) const;

  kube::KubeClient& client_;
  const Clock& clock_;
  const ShardLeaseOptions options_;
  std::string address_;
  ReplicaObserver observer_;
  std::string waited_for_;  // an operator of a version without shards
  bool is_replica_ = false;
  ShardSet open_;       // as passed to work_on
  ShardSet worked_on_;  // as returned by work_on
  SteadyTime renewed_at_{};
  mutable Mutex mutex_;
  ShardTable published_ LOCKSTEP_GUARDED_BY(mutex_);
  // The deadline for the next renewal; before Join returns, the deadline of the current attempt.
  std::atomic<SteadyTime> deadline_{SteadyTime{}};
  std::jthread watch_;  // while the lease is held; last: joins before the other members are destroyed
};

}  // namespace lockstep::sharding

#pragma once
// The loop around shard_assignment.h: enter the table of the replicas, stay in it, take and hand over shards, leave.
// Owned by main; one thread at a time calls it. A process that is out of the table must end (see shard_assignment.h), so
// there is no way back from Keep.
//
// From Join to Leave a separate thread watches the renew deadline, so that a request that hangs cannot keep a
// replica at work whose shards others may take.

#include <array>
#include <atomic>
#include <functional>
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
  bool is_pod = false;  // the identity is that of a pod: none but the newest process of it is alive
  // Works on these shards and on no others from now on. Returns those that are still worked on: these, and
  // others until the last work on them has ended. Called by the thread that calls Join and Keep; must not block.
  std::function<ShardSet(const ShardSet&)> work_on;
  // Called from the watching thread when the lease was not renewed within the renew deadline. It must end the
  // process.
  std::function<void()> on_expired;
  kube::LeaseTimings timings;
};

class ShardLease {
 public:
  ShardLease(kube::KubeClient& client, const Clock& clock, ShardLeaseOptions options);

  // Blocks until this process is one of the replicas (true) or `stop` (false). `address`: of its rendezvous
  // server, for the others' callers.
  [[nodiscard]] bool Join(const std::string& address, const std::stop_token& stop);
  // Renews, takes and hands over until `stop`, or until the table has this process no longer: then the error
  // says so.
  [[nodiscard]] Result<void> Keep(const std::stop_token& stop);
  // Frees the shards, so that others need not wait for the expiry. Call once nothing writes any more.
  void Leave();
  // How long a request of this class may take from now on, its repeats and waits included: until the renew
  // deadline, but at most half of it, so that one lost connection leaves time for a second request. Any
  // thread.
  [[nodiscard]] Milliseconds RequestTime() const;
  // The address of the replica that holds the shard, as last read; empty where that is this one, or none. Any
  // thread.
  [[nodiscard]] std::string AddressOf(std::size_t shard) const;
  // The replicas, as last read. Any thread.
  [[nodiscard]] std::vector<std::string> Replicas() const;

 private:
  // True where this process is one of the replicas now. kAborted: it was, and is no longer.
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
  std::string waited_for_;  // an operator older than shards
  bool is_replica_ = false;
  ShardSet open_;       // as passed to work_on
  ShardSet worked_on_;  // as returned by work_on
  SteadyTime renewed_at_{};
  mutable Mutex mutex_;
  ShardTable published_ LOCKSTEP_GUARDED_BY(mutex_);
  // By when the lease must be renewed; before this process is a replica, when the attempt under way must be over.
  std::atomic<SteadyTime> deadline_{SteadyTime{}};
  std::jthread watch_;  // while the lease is held; last: joins before the rest goes
};

}  // namespace lockstep::sharding

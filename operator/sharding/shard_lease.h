#pragma once
// The loop around lease.h: wait for the lease, keep it, give it back. Owned by main; one thread at a time
// calls it. A process that loses the lease must end (see lease.h), so there is no way back from Keep.
//
// From Acquire to Release a separate thread watches the renew deadline, so that a request that hangs cannot
// keep a leader alive whose lease others may take.

#include <atomic>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "operator/kube/client.h"
#include "operator/kube/lease.h"

namespace lockstep::kube {

struct LeaderElectionOptions {
  ObjectKey lease;
  std::string identity;
  // Called from the watching thread when the lease was not renewed within the renew deadline. It must end the
  // process.
  std::function<void()> on_expired;
  LeaseTimings timings;
};

class LeaderElection {
 public:
  LeaderElection(KubeClient& client, const Clock& clock, LeaderElectionOptions options);

  // Blocks until this process leads (true) or `stop` (false).
  [[nodiscard]] bool Acquire(const std::stop_token& stop);
  // Renews until `stop`, or until another process has taken the lease: then the error says so.
  [[nodiscard]] Result<void> Keep(const std::stop_token& stop);
  // Empties the holder, so that the next candidate need not wait for the expiry. Call once nothing writes any
  // more.
  void Release();
  // How long a request of the election may take from now on, its repeats and waits included: until the renew
  // deadline, but at most half of it, so that one lost connection leaves time for a second request. Any
  // thread.
  [[nodiscard]] Milliseconds RequestTime() const;

 private:
  // True where we hold it now.
  [[nodiscard]] Result<bool> Try();
  [[nodiscard]] Result<Json> Write(const Json& current, const LeaseRecord& record);
  [[nodiscard]] SteadyTime::duration TimeLeft() const { return deadline_.load() - clock_.Steady(); }
  void Watch(const std::stop_token& stop) const;

  KubeClient& client_;
  const Clock& clock_;
  const LeaderElectionOptions options_;
  LeaseObserver observer_;
  // By when the lease must be renewed; before it is held, when the attempt under way must be over.
  std::atomic<SteadyTime> deadline_{SteadyTime{}};
  std::jthread watch_;  // while the lease is held; last: joins before the rest goes
};

}  // namespace lockstep::kube

#pragma once
// The loop around lease.h: wait for the lease, keep it, give it back. Owned by main; one thread at a time
// calls it. A process that loses the lease must end (see lease.h), so there is no way back from Keep.

#include <stop_token>
#include <string>

#include "operator/kube/client.h"
#include "operator/kube/lease.h"

namespace lockstep::kube {

class LeaderElection {
 public:
  LeaderElection(KubeClient& client, const Clock& clock, ObjectKey lease, std::string identity,
                 LeaseTimings timings = {});

  // Blocks until this process leads (true) or `stop` (false).
  [[nodiscard]] bool Acquire(const std::stop_token& stop);
  // Renews until `stop`, or until the lease is lost: then the error says how.
  [[nodiscard]] Result<void> Keep(const std::stop_token& stop);
  // Empties the holder, so that the next candidate need not wait for the expiry. Call once nothing writes any
  // more.
  void Release();

 private:
  // True where we hold it now.
  [[nodiscard]] Result<bool> Try();
  [[nodiscard]] Result<Json> Write(const Json& current, const LeaseRecord& record);

  KubeClient& client_;
  const Clock& clock_;
  const ObjectKey lease_;
  const std::string identity_;
  const LeaseTimings timings_;
  LeaseObserver observer_;
};

}  // namespace lockstep::kube

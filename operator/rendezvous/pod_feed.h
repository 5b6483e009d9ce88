#pragma once
// Reports lost pods from the pod watch to the rendezvous: a worker whose pod is gone or whose container
// failed loses its place in the round at once, before a heartbeat is missed.
//
// A pod that is being deleted in good order is *not* reported: its worker got SIGTERM at the same moment,
// leaves by itself and saves. A report would fence it out (410) and lose that checkpoint. It is reported once
// its container has ended or the object is gone (a forced deletion).

#include <optional>
#include <string>

#include "operator/kube/store.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/common/rendezvous/service.h"

namespace lockstep::rendezvous {

struct PodLoss {
  protocol::JobIdentity job;
  PodEnd end;
};

// Pure. `container`: the name of the trainer container.
[[nodiscard]] std::optional<PodLoss> LossFrom(const kube::ObjectChange& change, const std::string& container);

// Called by the pod informer.
class PodFeed {
 public:
  PodFeed(const kube::Store& jobs, RendezvousService& service) : jobs_(jobs), service_(service) {}
  void OnChange(const kube::ObjectChange& change);

 private:
  const kube::Store& jobs_;
  RendezvousService& service_;
};

}  // namespace lockstep::rendezvous

#pragma once
// The rendezvous service: the protocol on top of any HttpServer handler, one Round per job. Hosted by the
// operator (operator/rendezvous; each replica for the jobs that it leads) and by `lockstep run` in its
// process. All methods are safe to call from any thread; long polls hold no thread.

#include <functional>
#include <memory>
#include <string>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"
#include "runtime/common/http/server.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/common/rendezvous/round.h"
#include "runtime/common/rendezvous/settings.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::rendezvous {

// A sender that claims to be this member.
struct Claim {
  std::string token;
  std::string peer;  // the address that the request came from
  protocol::JobIdentity job;
  protocol::Member member;
};

// Decides whether a claim is true, and calls `done` once, from any thread. kUnauthorized (401) and kForbidden
// (403) reject the request; every other error means that no decision is possible now (503: try again). Called
// on the server's thread; must not block.
using Authorizer = std::function<void(const Claim& claim, std::function<void(Result<void>)> done)>;

// Where a job's rendezvous is hosted; here if there is only one host.
struct HostedAt {
  bool is_here = true;
  std::string address;  // host:port of the other host; empty: none, or unknown
};
// Called on the server's thread; must not block.
using HostLookup = std::function<HostedAt(const protocol::JobIdentity& job)>;

class RendezvousService {
 public:
  // `on_change(job)` is called, never under a lock, when a view changed in a way worth a reconcile: round,
  // membership, a round's first step, completion; not for further progress. `host_of`: needed if hosts share
  // the jobs; messages for a job hosted elsewhere are answered with the address.
  RendezvousService(const Clock& clock, Authorizer authorize,
                    std::function<void(const protocol::JobIdentity&)> on_change, HostLookup host_of = {});
  ~RendezvousService();

  // Creates the job's rendezvous or changes its settings. Messages for unknown jobs are answered with 404,
  // and the member tries again.
  void Configure(const protocol::JobIdentity& job, const JobSettings& settings);
  void Forget(const protocol::JobIdentity& job);
  [[nodiscard]] RendezvousView View(const protocol::JobIdentity& job) const;

  // Removes a member whose pod is known to be gone (deleted, container ended, node lost). It is never
  // admitted again.
  void PodGone(const protocol::JobIdentity& job, const PodEnd& end);

  // The HTTP handler (POST /v1/…).
  void Handle(http::ServerRequest request, http::Responder respond);
  // Applies time-outs and answers expired long polls; call it about every 50 ms from one thread. An exception
  // for one job is logged and does not affect the others.
  void Tick();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::rendezvous

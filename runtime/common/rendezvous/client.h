#pragma once
// The member's side of the rendezvous: one method per message, one request each. The caller decides about
// retries. Any thread.

#include <stop_token>
#include <string>

#include "runtime/common/base/result.h"
#include "runtime/common/http/transport.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::rendezvous {

class RendezvousClient {
 public:
  explicit RendezvousClient(http::HttpTransport& transport) : transport_(transport) {}

  // Long polls of protocol::kLongPollSeconds. kGone: this member was evicted and must exit. Other errors are
  // temporary: the host is unavailable, restarting, or does not know the job yet.
  [[nodiscard]] Result<protocol::JoinAnswer> Join(const protocol::JoinRequest& request, std::stop_token stop);
  [[nodiscard]] Result<protocol::WatchAnswer> Watch(const protocol::WatchRequest& request,
                                                    std::stop_token stop);
  // Not a long poll.
  [[nodiscard]] Result<protocol::WatchAnswer> Heartbeat(const protocol::Heartbeat& heartbeat,
                                                        std::stop_token stop);
  [[nodiscard]] Result<void> Broken(const protocol::BrokenReport& report, std::stop_token stop);
  [[nodiscard]] Result<void> Leave(const protocol::LeaveRequest& request, std::stop_token stop);

  // Long polls to the supervisor of the round's rank 0.
  [[nodiscard]] Result<protocol::FormAnswer> Form(const protocol::FormRequest& request, std::stop_token stop);
  [[nodiscard]] Result<protocol::WatchAnswer> WatchFormation(const protocol::FormationWatch& request,
                                                             std::stop_token stop);

 private:
  http::HttpTransport& transport_;
};

}  // namespace lockstep::rendezvous

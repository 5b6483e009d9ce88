#pragma once
// Connects a member to the host of its job if several replicas of the operator share the jobs: uses their
// common address until a replica that does not host the job answers with the host's address. Any thread.

#include <memory>
#include <stop_token>
#include <string>

#include "runtime/common/base/mutex.h"
#include "runtime/common/http/transport.h"

namespace lockstep::rendezvous {

class FollowingTransport final : public http::HttpTransport {
 public:
  // `endpoint`: the common address. The host must present a certificate for the name in it, too.
  [[nodiscard]] static Result<std::unique_ptr<http::HttpTransport>> Make(const http::Endpoint& endpoint);

  // Sends to the host if it is known. A host that does not answer is dropped: the next request uses the
  // common address.
  Result<http::Response> Send(const http::Request& request, std::stop_token stop) override;
  Result<http::Response> Stream(const http::Request& request, const http::ChunkHandler& on_chunk,
                                std::stop_token stop) override;

 private:
  // Shared: requests in progress keep the transport of a former host.
  using Shared = std::shared_ptr<http::HttpTransport>;

  FollowingTransport(http::Endpoint endpoint, Shared common)
      : endpoint_(std::move(endpoint)), common_(std::move(common)), current_(common_) {}

  [[nodiscard]] Shared Current();
  // Does nothing if another request has replaced `former` meanwhile.
  void Replace(const Shared& former, Shared next);
  [[nodiscard]] Result<Shared> Connect(const std::string& address) const;

  const http::Endpoint endpoint_;
  const Shared common_;
  Mutex mutex_;
  Shared current_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::rendezvous

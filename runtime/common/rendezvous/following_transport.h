#pragma once
// How a member reaches the host of its job where several replicas of the operator share the jobs: by their common
// address, until one that does not host the job answers with the address of the one that does. Any thread.

#include <memory>
#include <stop_token>
#include <string>

#include "runtime/common/base/mutex.h"
#include "runtime/common/http/transport.h"

namespace lockstep::rendezvous {

class FollowingTransport final : public http::HttpTransport {
 public:
  // `endpoint`: the common address. The host must show a certificate for its name, too.
  [[nodiscard]] static Result<std::unique_ptr<http::HttpTransport>> Make(const http::Endpoint& endpoint);

  // To the host where it is known. One that does not answer is forgotten: the next request asks the others.
  Result<http::Response> Send(const http::Request& request, std::stop_token stop) override;
  Result<http::Response> Stream(const http::Request& request, const http::ChunkHandler& on_chunk,
                                std::stop_token stop) override;

 private:
  // Shared: requests under way keep the transport of a host that was left.
  using Shared = std::shared_ptr<http::HttpTransport>;

  FollowingTransport(http::Endpoint endpoint, Shared common)
      : endpoint_(std::move(endpoint)), common_(std::move(common)), current_(common_) {}

  [[nodiscard]] Shared Current();
  // Unless another request has replaced it meanwhile.
  void Replace(const Shared& former, Shared next);
  [[nodiscard]] Result<Shared> Connect(const std::string& address) const;

  const http::Endpoint endpoint_;
  const Shared common_;
  Mutex mutex_;
  Shared current_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::rendezvous

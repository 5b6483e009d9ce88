#include "runtime/common/rendezvous/following_transport.h"

#include <utility>

#include "runtime/common/base/json.h"
#include "runtime/common/base/log.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::rendezvous {
namespace {

// The job may move again while its host is looked for.
constexpr int kMostHosts = 3;

std::string HostIn(const http::Response& response) {
  const auto json = ParseJson(response.body);
  return json.ok() ? StringAt(*json, {protocol::kHostField}) : "";
}

}  // namespace

Result<std::unique_ptr<http::HttpTransport>> FollowingTransport::Make(const http::Endpoint& endpoint) {
  LOCKSTEP_TRY(auto common, http::MakeTransport(endpoint));
  return std::unique_ptr<http::HttpTransport>(new FollowingTransport(endpoint, std::move(common)));
}

Result<http::Response> FollowingTransport::Send(const http::Request& request, std::stop_token stop) {
  for (int asked = 1;; ++asked) {
    const Shared current = Current();
    auto answer = current->Send(request, stop);
    if (!answer.ok()) Replace(current, common_);
    if (!answer.ok() || answer->status != protocol::kMisdirected || asked == kMostHosts) return answer;
    LOCKSTEP_TRY(auto host, Connect(HostIn(*answer)));
    Replace(current, std::move(host));
  }
}

Result<http::Response> FollowingTransport::Stream(const http::Request& request,
                                                  const http::ChunkHandler& on_chunk, std::stop_token stop) {
  return Current()->Stream(request, on_chunk, std::move(stop));
}

FollowingTransport::Shared FollowingTransport::Current() {
  const MutexLock lock(mutex_);
  return current_;
}

void FollowingTransport::Replace(const Shared& former, Shared next) {
  const MutexLock lock(mutex_);
  if (current_ == former) current_ = std::move(next);
}

Result<FollowingTransport::Shared> FollowingTransport::Connect(const std::string& address) const {
  http::Endpoint host = endpoint_;
  const bool is_https = endpoint_.url.starts_with("https://");
  host.url = (is_https ? "https://" : "http://") + address;
  if (is_https && host.server_name.empty()) host.server_name = http::HostOfUrl(endpoint_.url);
  LOCKSTEP_TRY(auto transport, http::MakeTransport(host));
  log::Debug("another replica of the operator hosts the job", {{"address", address}});
  return Shared(std::move(transport));
}

}  // namespace lockstep::rendezvous

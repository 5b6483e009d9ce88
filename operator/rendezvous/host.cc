#include "operator/rendezvous/host.h"

#include <utility>

#include "runtime/common/base/pause.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr int kServerThreads = 2;

void TickUntil(const std::stop_token& stop, RendezvousService& service) {
  while (!stop.stop_requested()) {
    service.Tick();
    PauseFor(kTick, stop);
  }
}

}  // namespace

Result<std::unique_ptr<Host>> Host::Start(const HostOptions& options, RendezvousService& service) {
  const http::ServerOptions server{.address = options.address,
                                   .certificate = options.certificate,
                                   .threads = kServerThreads,
                                   .limits = options.limits};
  LOCKSTEP_TRY(auto started,
               http::StartServer(server, [&service](http::ServerRequest request, http::Responder respond) {
                 service.Handle(std::move(request), std::move(respond));
               }).WithContext("rendezvous server"));
  return std::unique_ptr<Host>(new Host(std::move(started), service));
}

Host::Host(std::unique_ptr<http::HttpServer> server, RendezvousService& service)
    : server_(std::move(server)),
      ticker_([&service](const std::stop_token& stop) { TickUntil(stop, service); }) {}

}  // namespace lockstep::rendezvous

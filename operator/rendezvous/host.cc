#include "operator/rendezvous/host.h"

#include <condition_variable>
#include <mutex>

#include "runtime/common/base/log.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

void TickUntilStopped(RendezvousService& service, std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    service.Tick();
    never.wait_for(lock, stop, 50ms, [] { return false; });
  }
}

}  // namespace

Result<std::unique_ptr<RendezvousHost>> RendezvousHost::Start(const HostOptions& options,
                                                              RendezvousService& service) {
  http::ServerOptions server_options{
      .address = options.address, .certificate_pem = options.certificate_pem, .key_pem = options.key_pem};
  LOCKSTEP_TRY(auto server, http::StartServer(server_options, [&service](http::ServerRequest request,
                                                                         http::Responder respond) {
                 service.Handle(std::move(request), std::move(respond));
               }));
  log::Info("rendezvous serving", {{"port", server->port()}, {"tls", !options.key_pem.empty()}});
  return std::unique_ptr<RendezvousHost>(new RendezvousHost(std::move(server), service));
}

RendezvousHost::RendezvousHost(std::unique_ptr<http::HttpServer> server, RendezvousService& service)
    : server_(std::move(server)),
      ticker_([&service](std::stop_token stop) { TickUntilStopped(service, stop); }) {}

}  // namespace lockstep::rendezvous

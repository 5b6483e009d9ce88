#pragma once
// Serves the rendezvous over HTTPS while this operator leads: listens, and moves the service's time forward.
// Made when leadership begins, destroyed when it ends.

#include <memory>
#include <string>
#include <thread>

#include "runtime/common/http/server.h"
#include "runtime/common/rendezvous/service.h"

namespace lockstep::rendezvous {

struct HostOptions {
  std::string address;          // host:port to listen on
  std::string certificate_pem;  // both empty: plain HTTP, for development
  std::string key_pem;
};

class RendezvousHost {
 public:
  // `service` must outlive the host.
  [[nodiscard]] static Result<std::unique_ptr<RendezvousHost>> Start(const HostOptions& options,
                                                                     RendezvousService& service);
  [[nodiscard]] int port() const { return server_->port(); }

 private:
  RendezvousHost(std::unique_ptr<http::HttpServer> server, RendezvousService& service);

  std::unique_ptr<http::HttpServer> server_;
  std::jthread ticker_;
};

}  // namespace lockstep::rendezvous

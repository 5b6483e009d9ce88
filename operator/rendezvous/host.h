#pragma once
// Serves the rendezvous of the jobs that this process leads: an HTTP(S) server in front of RendezvousService,
// and a thread that calls its Tick. Built by main before the process leads jobs. The destructor stops
// serving.

#include <memory>
#include <string>
#include <thread>

#include "runtime/common/http/server.h"
#include "runtime/common/rendezvous/service.h"

namespace lockstep::rendezvous {

struct HostOptions {
  std::string address;                                   // host:port to listen on
  const http::ServerCertificate* certificate = nullptr;  // outlives the host; null: plain HTTP
  http::ConnectionLimits limits;
};

class Host {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Host>> Start(const HostOptions& options,
                                                           RendezvousService& service);
  [[nodiscard]] int port() const { return server_->port(); }

 private:
  Host(std::unique_ptr<http::HttpServer> server, RendezvousService& service);
  std::unique_ptr<http::HttpServer> server_;
  std::jthread ticker_;  // last: ends first
};

}  // namespace lockstep::rendezvous

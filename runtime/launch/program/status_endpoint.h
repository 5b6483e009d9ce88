#pragma once
// Where a training framework posts its status (runtime/witness/trainer_status.h): an HTTP server of `lockstep program` on
// the loopback interface. Each request needs a token, which the program finds in an anonymous file, so other users
// of the machine cannot post.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/common/http/server.h"
#include "runtime/witness/trainer_status.h"

namespace lockstep::launch {

class StatusEndpoint {
 public:
  // `on_status` is called on a thread of the server.
  [[nodiscard]] static Result<std::unique_ptr<StatusEndpoint>> Start(
      std::function<void(witness::TrainerStatus)> on_status);

  // What frameworks read; NAME=value.
  [[nodiscard]] std::vector<std::string> Environment() const;

 private:
  StatusEndpoint() = default;
  void Handle(const http::ServerRequest& request, const http::Responder& respond) const;

  std::function<void(witness::TrainerStatus)> on_status_;
  std::string token_;
  Fd token_file_;
  std::unique_ptr<http::HttpServer> server_;
};

}  // namespace lockstep::launch

#include "runtime/launch/program/status_endpoint.h"

#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/witness/page.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kTokenBytes = 32;
constexpr const char* kPath = "/status";

}  // namespace

Result<std::unique_ptr<StatusEndpoint>> StatusEndpoint::Start(
    std::function<void(witness::TrainerStatus)> on_status) {
  auto endpoint = std::unique_ptr<StatusEndpoint>(new StatusEndpoint);
  endpoint->on_status_ = std::move(on_status);
  endpoint->token_ = RandomHex(kTokenBytes);
  LOCKSTEP_TRY(endpoint->token_file_, witness::MakeMemoryFile("lockstep-status-token", endpoint->token_));
  LOCKSTEP_TRY(endpoint->server_, http::StartServer({.max_body_bytes = 64 << 10},
                                                    [at = endpoint.get()](const http::ServerRequest& request,
                                                                          const http::Responder& respond) {
                                                      at->Handle(request, respond);
                                                    }));
  return endpoint;
}

std::vector<std::string> StatusEndpoint::Environment() const {
  return {"KUBEFLOW_TRAINER_SERVER_URL=http://127.0.0.1:" + std::to_string(server_->port()) + kPath,
          "KUBEFLOW_TRAINER_SERVER_TOKEN=" + witness::PathOf(token_file_)};
}

void StatusEndpoint::Handle(const http::ServerRequest& request, const http::Responder& respond) const {
  if (request.method != "POST" || request.path != kPath)
    return respond(http::TextResponse(404, std::string("try POST ") + kPath + "\n"));
  if (http::BearerTokenOf(request) != token_) return respond(http::TextResponse(401, "wrong token\n"));
  auto status = witness::ParseTrainerStatus(request.body);
  if (!status.ok()) return respond(http::TextResponse(400, status.error().message + "\n"));
  on_status_(*status);
  respond(http::TextResponse(200, "ok\n"));
}

}  // namespace lockstep::launch

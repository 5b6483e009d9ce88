#include "runtime/common/rendezvous/client.h"

#include "runtime/common/base/fields.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLongPollTimeout(static_cast<int64_t>(protocol::kLongPollSeconds * 1000) +
                                                     5'000);
constexpr std::chrono::milliseconds kShortTimeout = 5s;

ErrorCode CodeOf(int status) {
  switch (status) {
    case 400: return ErrorCode::kInvalidArgument;
    case 401: return ErrorCode::kUnauthorized;
    case 403: return ErrorCode::kForbidden;
    case 410: return ErrorCode::kGone;
    default: return ErrorCode::kUnavailable;
  }
}

template <typename Message>
Result<Json> Post(http::HttpTransport& transport, std::string_view path, const Message& message,
                  std::chrono::milliseconds timeout, std::stop_token stop) {
  http::Request request{.method = "POST",
                        .target = std::string(path),
                        .body = DumpJson(MessageToJson(message)),
                        .timeout = timeout};
  LOCKSTEP_TRY(const http::Response response, transport.Send(request, std::move(stop)));
  auto json = ParseJson(response.body);
  if (response.status == 200) return json;
  const std::string reason = json.ok() ? StringAt(*json, {"error"}) : response.body;
  return Error{CodeOf(response.status),
               "rendezvous " + std::string(path) + ": " + std::to_string(response.status) + " " + reason};
}

}  // namespace

Result<protocol::JoinAnswer> RendezvousClient::Join(const protocol::JoinRequest& request,
                                                    std::stop_token stop) {
  LOCKSTEP_TRY(const Json json,
               Post(transport_, protocol::kJoinPath, request, kLongPollTimeout, std::move(stop)));
  return MessageFromJson<protocol::JoinAnswer>(json);
}

Result<protocol::WatchAnswer> RendezvousClient::Watch(const protocol::WatchRequest& request,
                                                      std::stop_token stop) {
  LOCKSTEP_TRY(const Json json,
               Post(transport_, protocol::kWatchPath, request, kLongPollTimeout, std::move(stop)));
  return MessageFromJson<protocol::WatchAnswer>(json);
}

Result<protocol::FormAnswer> RendezvousClient::Form(const protocol::FormRequest& request,
                                                    std::stop_token stop) {
  LOCKSTEP_TRY(const Json json,
               Post(transport_, protocol::kFormPath, request, kLongPollTimeout, std::move(stop)));
  return MessageFromJson<protocol::FormAnswer>(json);
}

Result<protocol::WatchAnswer> RendezvousClient::WatchFormation(const protocol::FormationWatch& request,
                                                               std::stop_token stop) {
  LOCKSTEP_TRY(const Json json,
               Post(transport_, protocol::kFormationWatchPath, request, kLongPollTimeout, std::move(stop)));
  return MessageFromJson<protocol::WatchAnswer>(json);
}

Result<protocol::WatchAnswer> RendezvousClient::Heartbeat(const protocol::Heartbeat& heartbeat,
                                                          std::stop_token stop) {
  LOCKSTEP_TRY(const Json json,
               Post(transport_, protocol::kHeartbeatPath, heartbeat, kShortTimeout, std::move(stop)));
  return MessageFromJson<protocol::WatchAnswer>(json);
}

Result<void> RendezvousClient::Broken(const protocol::BrokenReport& report, std::stop_token stop) {
  const auto answer = Post(transport_, protocol::kBrokenPath, report, kShortTimeout, std::move(stop));
  return answer.ok() ? Result<void>() : Result<void>(answer.error());
}

Result<void> RendezvousClient::Leave(const protocol::LeaveRequest& request, std::stop_token stop) {
  const auto answer = Post(transport_, protocol::kLeavePath, request, kShortTimeout, std::move(stop));
  return answer.ok() ? Result<void>() : Result<void>(answer.error());
}

}  // namespace lockstep::rendezvous

#include "operator/kube/status_error.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/common/base/strings.h"

namespace lockstep::kube {
namespace {

// metav1.StatusReason is more specific than the HTTP status: 409 means either of two things.
constexpr std::array<std::pair<std::string_view, ErrorCode>, 5> kReasons = {{
    {"AlreadyExists", ErrorCode::kAlreadyExists},
    {"Conflict", ErrorCode::kConflict},
    {"Expired", ErrorCode::kGone},
    {"Gone", ErrorCode::kGone},
    {"NotFound", ErrorCode::kNotFound},
}};

ErrorCode CodeFromNumber(int status) {
  switch (status) {
    case 400:
    case 413:
    case 415:
    case 422: return ErrorCode::kInvalidArgument;
    case 401: return ErrorCode::kUnauthorized;
    case 403: return ErrorCode::kForbidden;
    case 404: return ErrorCode::kNotFound;
    case 409: return ErrorCode::kConflict;
    case 410: return ErrorCode::kGone;
    case 429: return ErrorCode::kThrottled;
    case 504: return ErrorCode::kDeadlineExceeded;
    default: return status >= 500 ? ErrorCode::kUnavailable : ErrorCode::kInternal;
  }
}

// True for the rejection of a create in a namespace that is being deleted.
bool NamespaceEnds(const Json& status) {
  const Json* causes = FindJson(status, {"details", "causes"});
  return causes != nullptr && causes->is_array() &&
         std::any_of(causes->begin(), causes->end(),
                     [](const Json& cause) { return StringAt(cause, {"reason"}) == "NamespaceTerminating"; });
}

}  // namespace

Error ErrorFromStatus(const Json& status, int http_status) {
  const int number = static_cast<int>(IntAt(status, {"code"}, http_status));
  const std::string reason = StringAt(status, {"reason"});
  ErrorCode code = CodeFromNumber(number);
  for (const auto& [name, meaning] : kReasons) {
    if (reason == name) code = meaning;
  }
  if (NamespaceEnds(status)) code = ErrorCode::kNotFound;
  return {code, std::to_string(number) + " " + StringAt(status, {"message"}, reason)};
}

Result<Json> BodyOrError(const http::Response& response) {
  auto body = ParseJson(response.body);
  if (response.status < 300) return std::move(body).WithContext("answer of the API server");
  if (!body.ok()) return ErrorFromStatus({{"message", Truncate(response.body, 200)}}, response.status);
  return ErrorFromStatus(*body, response.status);
}

}  // namespace lockstep::kube

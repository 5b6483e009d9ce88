#pragma once
// The API server's refusals as Error codes, so that callers decide by code. Pure.

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

// From a metav1.Status document, as in a refused request or a watch's ERROR event.
[[nodiscard]] Error ErrorFromStatus(const Json& status, int http_status);
// The body as JSON where the status is below 300, else the error it describes.
[[nodiscard]] Result<Json> BodyOrError(const http::Response& response);

}  // namespace lockstep::kube

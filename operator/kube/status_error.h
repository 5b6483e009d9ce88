#pragma once
// Converts rejections of the API server to Error codes, so that callers decide by code. Pure.

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

// From a metav1.Status document, as in a rejected request or an ERROR event of a watch.
[[nodiscard]] Error ErrorFromStatus(const Json& status, int http_status);
// The body as JSON if the status is below 300, else the error that it describes.
[[nodiscard]] Result<Json> BodyOrError(const http::Response& response);

}  // namespace lockstep::kube

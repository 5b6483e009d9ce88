#pragma once
// Standard base64, as in Secrets and kubeconfigs. Pure.

#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep::kube {

[[nodiscard]] std::string EncodeBase64(std::string_view bytes);
[[nodiscard]] Result<std::string> DecodeBase64(std::string_view text);  // accepts line breaks

}  // namespace lockstep::kube

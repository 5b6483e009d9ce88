#pragma once
// Converts the error output of kubectl to one line for people and an error code. The text is all that
// distinguishes kinds of failure. Pure.

#include <string_view>

#include "runtime/common/base/error.h"

namespace lockstep::kubectl_plugin {

[[nodiscard]] Error ExplainFailure(std::string_view said);

}  // namespace lockstep::kubectl_plugin

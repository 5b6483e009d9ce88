#pragma once
// What kubectl said when it failed, as one line for people and a code to decide by. kubectl tells kinds of
// failure apart by its words only. Pure.

#include <string_view>

#include "runtime/common/base/error.h"

namespace lockstep::kubectl_plugin {

[[nodiscard]] Error ExplainFailure(std::string_view said);

}  // namespace lockstep::kubectl_plugin

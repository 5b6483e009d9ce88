#pragma once
// What containers ask for, in whole numbers: a Kubernetes quantity such as "4", 4 or "2500m", rounded down.
// Pure.

#include <optional>
#include <string_view>

#include "runtime/common/base/json.h"

namespace lockstep::api {

// kind: "requests" or "limits". Of the resource whose name ends so; absent where the container names none.
[[nodiscard]] std::optional<int> CountOf(const Json& container, std::string_view kind,
                                         std::string_view suffix);

// A limit of nvidia.com/gpu, amd.com/gpu or another vendor's.
[[nodiscard]] std::optional<int> GpusOf(const Json& container);

// Of all containers of a pod, or of a pod template.
[[nodiscard]] int GpusOfPod(const Json& pod);

}  // namespace lockstep::api

#pragma once
// What containers ask for, in whole numbers: a Kubernetes quantity such as "4", 4 or "2500m", rounded down.
// Pure.

#include <optional>
#include <string_view>

#include "runtime/common/base/json.h"

namespace lockstep::api {

// kind: "requests" or "limits"; absent where the container does not name the resource.
[[nodiscard]] std::optional<int> CountOf(const Json& container, std::string_view kind,
                                         std::string_view resource);

// The sum of its limits of nvidia.com/gpu, amd.com/gpu or another vendor's, of MIG instances
// (nvidia.com/mig-1g.5gb), and of device classes of GPUs (deviceclass.resource.kubernetes.io/gpu.nvidia.com);
// absent where it names none.
[[nodiscard]] std::optional<int> GpusOf(const Json& container);

// Of all containers of a pod, or of a pod template.
[[nodiscard]] int GpusOfPod(const Json& pod);

// Whether it uses resource claims (dynamic resource allocation). Of which devices, and how many, is in the
// claims, not in the pod.
[[nodiscard]] bool HasClaims(const Json& container);

}  // namespace lockstep::api

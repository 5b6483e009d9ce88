#pragma once
// The resources of containers in whole numbers: a Kubernetes quantity such as "4", 4 or "2500m", rounded
// down. Pure.

#include <optional>
#include <string_view>

#include "runtime/common/base/json.h"

namespace lockstep::api {

// kind: "requests" or "limits"; absent if the container does not name the resource.
[[nodiscard]] std::optional<int> CountOf(const Json& container, std::string_view kind,
                                         std::string_view resource);

// The sum of its limits of nvidia.com/gpu, amd.com/gpu or another vendor's GPUs, of MIG instances
// (nvidia.com/mig-1g.5gb), and of device classes of GPUs (deviceclass.resource.kubernetes.io/gpu.nvidia.com);
// absent if it has no such limit.
[[nodiscard]] std::optional<int> GpusOf(const Json& container);

// Over all containers of a pod or of a pod template.
[[nodiscard]] int GpusOfPod(const Json& pod);

// Whether it uses resource claims (dynamic resource allocation). The claims, not the pod, say which and how
// many devices.
[[nodiscard]] bool HasClaims(const Json& container);

}  // namespace lockstep::api

#pragma once
// Kueue's own settings of a job: a label of the job, and annotations of worker.template for its
// topology-aware scheduling. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/json.h"

namespace lockstep::api {

inline constexpr std::string_view kLabelWorkloadPriorityClass = "kueue.x-k8s.io/priority-class";

inline constexpr std::string_view kAnnotationRequiredTopology = "kueue.x-k8s.io/podset-required-topology";
inline constexpr std::string_view kAnnotationPreferredTopology = "kueue.x-k8s.io/podset-preferred-topology";
inline constexpr std::string_view kAnnotationUnconstrainedTopology =
    "kueue.x-k8s.io/podset-unconstrained-topology";
inline constexpr std::string_view kAnnotationSliceTopology = "kueue.x-k8s.io/podset-slice-required-topology";
inline constexpr std::string_view kAnnotationSliceSize = "kueue.x-k8s.io/podset-slice-size";

[[nodiscard]] std::string AnnotationOf(const Json& object, std::string_view key);
// Absent if there is no such annotation or its value is not an integer from 1.
[[nodiscard]] std::optional<int32_t> SliceSizeOf(const Json& pod_template);

// Violations in the annotations of the template of `pods` pods, by the rules of Kueue.
[[nodiscard]] std::vector<std::string> ValidateTopology(const Json& pod_template, int32_t pods);

}  // namespace lockstep::api

#include "runtime/common/api/kueue.h"

#include <array>
#include <charconv>

namespace lockstep::api {
namespace {

constexpr std::size_t kMaxTopologyLength = 63;
constexpr std::array kOneOf = {kAnnotationRequiredTopology, kAnnotationPreferredTopology,
                               kAnnotationUnconstrainedTopology};

bool HasAnnotation(const Json& object, std::string_view key) {
  return FindJson(object, {"metadata", "annotations", key}) != nullptr;
}

std::string Problem(std::string_view key, const std::string& problem) {
  return "spec.worker.template.metadata.annotations[" + std::string(key) + "]: " + problem;
}

}  // namespace

std::string AnnotationOf(const Json& object, std::string_view key) {
  return StringAt(object, {"metadata", "annotations", key});
}

std::optional<int32_t> SliceSizeOf(const Json& pod_template) {
  const std::string text = AnnotationOf(pod_template, kAnnotationSliceSize);
  int32_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size < 1) return std::nullopt;
  return size;
}

std::vector<std::string> ValidateTopology(const Json& pod_template, int32_t pods) {
  std::vector<std::string> violations;
  std::string_view first;
  for (const std::string_view key : kOneOf) {
    if (!HasAnnotation(pod_template, key)) continue;
    if (!first.empty()) violations.push_back(Problem(key, "must be absent with " + std::string(first)));
    first = key;
  }
  for (const auto& key :
       {kAnnotationRequiredTopology, kAnnotationPreferredTopology, kAnnotationSliceTopology}) {
    const std::size_t length = AnnotationOf(pod_template, key).size();
    if (HasAnnotation(pod_template, key) && (length == 0 || length > kMaxTopologyLength))
      violations.push_back(Problem(key, "must be the label of nodes that names a level of the topology"));
  }
  const std::string unconstrained = AnnotationOf(pod_template, kAnnotationUnconstrainedTopology);
  if (HasAnnotation(pod_template, kAnnotationUnconstrainedTopology) && unconstrained != "true" &&
      unconstrained != "false") {
    violations.push_back(Problem(kAnnotationUnconstrainedTopology,
                                 "must be \"true\" or \"false\", not \"" + unconstrained + "\""));
  }
  if (HasAnnotation(pod_template, kAnnotationSliceTopology) !=
      HasAnnotation(pod_template, kAnnotationSliceSize)) {
    violations.push_back(
        Problem(kAnnotationSliceSize, "belongs with " + std::string(kAnnotationSliceTopology)));
  } else if (HasAnnotation(pod_template, kAnnotationSliceSize) &&
             SliceSizeOf(pod_template).value_or(pods + 1) > pods) {
    violations.push_back(Problem(kAnnotationSliceSize, "must be a number from 1 to " + std::to_string(pods) +
                                                           ", the pods of the job"));
  }
  return violations;
}

}  // namespace lockstep::api

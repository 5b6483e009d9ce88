#include "runtime/common/api/names.h"

#include <charconv>

namespace lockstep::api {

std::string PodName(std::string_view job, int32_t slot) {
  return std::string(job) + "-worker-" + std::to_string(slot);
}

std::string ServiceName(std::string_view job) { return std::string(job); }

std::string ConfigMapName(std::string_view job) { return std::string(job) + "-config"; }

std::string ServiceAccountName(std::string_view job) { return std::string(job) + "-worker"; }

std::string RemovalPodName(std::string_view job, std::string_view uid) {
  return std::string(job) + "-removal-" + std::string(uid);
}

std::map<std::string, std::string> WorkerLabels(std::string_view job, int32_t slot) {
  return {{std::string(kLabelJob), std::string(job)},
          {std::string(kLabelSlot), std::to_string(slot)},
          {std::string(kLabelManagedBy), std::string(kManagedByValue)},
          {std::string(kLabelName), std::string(kWorkerNameValue)}};
}

std::string WorkerSelector(std::string_view job) {
  return std::string(kLabelName) + "=" + std::string(kWorkerNameValue) + "," + std::string(kLabelJob) + "=" +
         std::string(job);
}

std::optional<int32_t> SlotFromLabels(const std::map<std::string, std::string>& labels) {
  const auto found = labels.find(std::string(kLabelSlot));
  if (found == labels.end()) return std::nullopt;
  const std::string& text = found->second;
  int32_t slot = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slot);
  if (error != std::errc{} || end != text.data() + text.size() || slot < 0) return std::nullopt;
  return slot;
}

}  // namespace lockstep::api

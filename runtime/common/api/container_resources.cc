#include "runtime/common/api/container_resources.h"

#include <cstdlib>
#include <string>

namespace lockstep::api {
namespace {

int CountFromQuantity(const Json& quantity) {
  if (quantity.is_number()) return static_cast<int>(quantity.get<double>());
  if (!quantity.is_string()) return 0;
  const auto text = quantity.get<std::string>();
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return static_cast<int>(*end == 'm' ? number / 1000 : number);
}

// The drivers of NVIDIA, AMD and Intel name their device classes gpu.nvidia.com, mig.nvidia.com and so on.
bool IsGpu(std::string_view resource) {
  constexpr std::string_view kDeviceClass = "deviceclass.resource.kubernetes.io/";
  if (resource.ends_with(".com/gpu") || resource.starts_with("nvidia.com/mig-")) return true;
  if (!resource.starts_with(kDeviceClass)) return false;
  resource.remove_prefix(kDeviceClass.size());
  return resource.starts_with("gpu.") || resource.starts_with("mig.");
}

}  // namespace

std::optional<int> CountOf(const Json& container, std::string_view kind, std::string_view resource) {
  const Json* quantity = FindJson(container, {"resources", kind, resource});
  return quantity == nullptr ? std::nullopt : std::optional(CountFromQuantity(*quantity));
}

std::optional<int> GpusOf(const Json& container) {
  const Json* limits = FindJson(container, {"resources", "limits"});
  if (limits == nullptr || !limits->is_object()) return std::nullopt;
  std::optional<int> gpus;
  for (const auto& [name, quantity] : limits->items()) {
    if (IsGpu(name)) gpus = gpus.value_or(0) + CountFromQuantity(quantity);
  }
  return gpus;
}

int GpusOfPod(const Json& pod) {
  const Json* containers = FindJson(pod, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array()) return 0;
  int gpus = 0;
  for (const Json& container : *containers) gpus += GpusOf(container).value_or(0);
  return gpus;
}

bool HasClaims(const Json& container) {
  const Json* claims = FindJson(container, {"resources", "claims"});
  return claims != nullptr && claims->is_array() && !claims->empty();
}

}  // namespace lockstep::api

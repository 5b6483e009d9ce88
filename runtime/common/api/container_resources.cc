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

}  // namespace

std::optional<int> CountOf(const Json& container, std::string_view kind, std::string_view suffix) {
  const Json* resources = FindJson(container, {"resources", kind});
  if (resources == nullptr || !resources->is_object()) return std::nullopt;
  for (const auto& [name, quantity] : resources->items()) {
    if (name.ends_with(suffix)) return CountFromQuantity(quantity);
  }
  return std::nullopt;
}

std::optional<int> GpusOf(const Json& container) { return CountOf(container, "limits", ".com/gpu"); }

int GpusOfPod(const Json& pod) {
  const Json* containers = FindJson(pod, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array()) return 0;
  int gpus = 0;
  for (const Json& container : *containers) gpus += GpusOf(container).value_or(0);
  return gpus;
}

}  // namespace lockstep::api

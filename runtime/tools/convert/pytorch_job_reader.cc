#include "runtime/tools/convert/pytorch_job_reader.h"

#include <algorithm>
#include <array>

#include "runtime/common/base/strings.h"

namespace lockstep::convert {
namespace {

// Fields that an API server adds to any object.
constexpr std::array<std::string_view, 11> kServers = {"apiVersion",
                                                       "kind",
                                                       "status",
                                                       "metadata.uid",
                                                       "metadata.resourceVersion",
                                                       "metadata.generation",
                                                       "metadata.creationTimestamp",
                                                       "metadata.managedFields",
                                                       "metadata.selfLink",
                                                       "metadata.deletionTimestamp",
                                                       "metadata.deletionGracePeriodSeconds"};

bool HoldsFields(const std::string& path) {
  const auto fields = JobFields();
  return std::any_of(fields.begin(), fields.end(),
                     [&](const Field& field) { return field.theirs.starts_with(path + "."); });
}

}  // namespace

const Json* PyTorchJobReader::Take(std::string_view field) {
  LOCKSTEP_CHECK(FindField(JobFields(), field) != nullptr, std::string(field));
  taken_.emplace(field);
  const Json* value = &object_;
  for (const std::string& key : Split(field, '.')) {
    if (value != nullptr) value = FindJson(*value, {key});
  }
  return value;
}

std::optional<int64_t> PyTorchJobReader::TakeInteger(std::string_view field) {
  const Json* value = Take(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) return value->get<int64_t>();
  notices_.Fail(std::string(field), "must be an integer");
  return std::nullopt;
}

std::string PyTorchJobReader::TakeText(std::string_view field) {
  const Json* value = Take(field);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  notices_.Fail(std::string(field), "must be text");
  return "";
}

void PyTorchJobReader::Finish() { Walk(object_, ""); }

void PyTorchJobReader::Walk(const Json& object, const std::string& path) {
  for (const auto& [key, value] : object.items()) {
    const std::string place = path.empty() ? key : path + "." + key;
    if (value.is_null() || taken_.contains(place)) continue;
    if (std::find(kServers.begin(), kServers.end(), place) != kServers.end()) continue;
    const Field* field = FindField(JobFields(), place);
    if (field != nullptr && field->fate != Fate::kBecomes) {
      notices_.Say(*field, place);
    } else if (value.is_object() && HoldsFields(place)) {
      Walk(value, place);
    } else {
      notices_.Fail(place, "is not a field of a PyTorchJob that convert supports; remove it");
    }
  }
}

}  // namespace lockstep::convert

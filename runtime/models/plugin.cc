#include "runtime/models/plugin.h"

#include <exception>

#include "runtime/plugin/library.h"

namespace lockstep::models {
namespace {

constexpr const char* kSection = "spec.training.model.plugin";

}  // namespace

Result<std::shared_ptr<Model>> MakePluginModel(const api::PluginSpec& spec, const ModelInput& input) {
  LOCKSTEP_TRY(const PluginPart* const part, plugin::Find(spec, plugin::Kind::kModel, kSection));
  try {
    return part->make_model(input, spec.options);
  } catch (const std::exception& error) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string(kSection) + ".options: " + spec.name + ": " + error.what()};
  }
}

}  // namespace lockstep::models

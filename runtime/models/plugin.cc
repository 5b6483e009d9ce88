#include "runtime/models/plugin.h"

#include <dlfcn.h>

#include <exception>
#include <span>

namespace lockstep::models {
namespace {

Error Bad(const std::string& field, const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "spec.training.model.plugin." + field + ": " + problem};
}

Result<const Plugin*> Load(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Bad("path", std::string(::dlerror()));
  auto* const entry = reinterpret_cast<const Plugin* (*)()>(::dlsym(library, "lockstep_plugin"));
  if (entry == nullptr) return Bad("path", path + " has no LOCKSTEP_PLUGIN");
  const Plugin* const plugin = entry();
  if (plugin->version != kPluginVersion) {
    return Bad("path", path + " was built against version " + std::to_string(plugin->version) +
                           " of the SDK, and this is " + std::to_string(kPluginVersion));
  }
  if (std::string_view(plugin->torch) != TORCH_VERSION) {
    return Bad("path",
               path + " was built against LibTorch " + plugin->torch + ", and this is " + TORCH_VERSION);
  }
  return plugin;
}

}  // namespace

Result<std::shared_ptr<Model>> MakePluginModel(const api::PluginSpec& spec, const ModelInput& input) {
  LOCKSTEP_TRY(const Plugin* const plugin, Load(spec.path));
  std::string known;
  for (const PluginModel& model : std::span(plugin->models, static_cast<std::size_t>(plugin->count))) {
    if (model.name != spec.name) {
      known += (known.empty() ? "" : ", ") + std::string(model.name);
      continue;
    }
    try {
      return model.make(input, spec.options);
    } catch (const std::exception& error) {
      return Bad("options", spec.name + ": " + error.what());
    }
  }
  return Bad("name", spec.path + " has no model " + spec.name + "; it has " + known);
}

}  // namespace lockstep::models

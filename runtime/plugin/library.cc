#include "runtime/plugin/library.h"

#include <dlfcn.h>

#include <span>
#include <string_view>

namespace lockstep::plugin {
namespace {

Error BadPath(const std::string& section, const std::string& problem) {
  return {ErrorCode::kInvalidArgument, section + ".path: " + problem};
}

Result<const Plugin*> Load(const std::string& path, const std::string& section) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return BadPath(section, std::string(::dlerror()));
  auto* const entry = reinterpret_cast<const Plugin* (*)()>(::dlsym(library, "lockstep_plugin"));
  if (entry == nullptr) return BadPath(section, path + " has no LOCKSTEP_PLUGIN");
  const Plugin* const plugin = entry();
  if (plugin->version != kPluginVersion) {
    return BadPath(section, path + " was built against version " + std::to_string(plugin->version) +
                                " of the SDK, and this is " + std::to_string(kPluginVersion));
  }
  if (std::string_view(plugin->torch) != TORCH_VERSION) {
    return BadPath(section,
                   path + " was built against LibTorch " + plugin->torch + ", and this is " + TORCH_VERSION);
  }
  return plugin;
}

bool IsOf(const PluginPart& part, Kind kind) {
  return kind == Kind::kModel ? part.make_model != nullptr : part.make_dataset != nullptr;
}

}  // namespace

Result<const PluginPart*> Find(const api::PluginSpec& spec, Kind kind, const std::string& section) {
  LOCKSTEP_TRY(const Plugin* const plugin, Load(spec.path, section));
  std::string known;
  for (const PluginPart& part : std::span(plugin->parts, static_cast<std::size_t>(plugin->count))) {
    if (!IsOf(part, kind)) continue;
    if (part.name == spec.name) return &part;
    known += (known.empty() ? "" : ", ") + std::string(part.name);
  }
  const std::string what = kind == Kind::kModel ? "model" : "data set";
  return Error{ErrorCode::kInvalidArgument, section + ".name: " + spec.path + " has no " + what + " " +
                                                spec.name +
                                                (known.empty() ? ", nor any other" : "; it has " + known)};
}

}  // namespace lockstep::plugin

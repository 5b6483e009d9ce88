#pragma once
// A user's library of models, data sets, or both. Declare them with LOCKSTEP_PLUGIN, build a shared library
// (find_package(lockstep), target lockstep::sdk), and name it in the manifest:
//
//   model: {name: plugin, plugin: {path: /models/libmine.so, name: mine, options: {width: "64"}}}
//   data: {format: plugin, plugin: {path: /models/libmine.so, name: signals}}
//
// It must be built against the LibTorch release of the worker image; otherwise it is rejected when it is
// loaded.

#include <lockstep/dataset.h>
#include <lockstep/model.h>
#include <torch/version.h>

#include <map>
#include <memory>
#include <string>

namespace lockstep {

// spec.training.model.plugin.options, spec.training.data.plugin.options.
using PluginOptions = std::map<std::string, std::string>;

// One model or one data set; the other function is null. Both may throw a std::exception.
struct PluginPart {
  const char* name;
  std::shared_ptr<Model> (*make_model)(const ModelInput& input, const PluginOptions& options);
  std::unique_ptr<Dataset> (*make_dataset)(const DatasetInput& input, const PluginOptions& options);
};
// The parts of a library. Use LOCKSTEP_PLUGIN.
struct Plugin {
  int version;
  const char* torch;
  const PluginPart* parts;
  int count;
};
inline constexpr int kPluginVersion = 3;  // of the structs and classes here, in model.h and dataset.h

// Registers a model class with a constructor (const ModelInput&, const PluginOptions&) under a name.
template <typename M>
constexpr PluginPart PluginModel(const char* name) {
  return {name,
          [](const ModelInput& input, const PluginOptions& options) -> std::shared_ptr<Model> {
            return std::make_shared<M>(input, options);
          },
          nullptr};
}

// Registers a data set class with a constructor (const DatasetInput&, const PluginOptions&) under a name.
template <typename D>
constexpr PluginPart PluginDataset(const char* name) {
  return {name, nullptr,
          [](const DatasetInput& input, const PluginOptions& options) -> std::unique_ptr<Dataset> {
            return std::make_unique<D>(input, options);
          }};
}

}  // namespace lockstep

// LOCKSTEP_PLUGIN(lockstep::PluginModel<Mine>("mine"), lockstep::PluginDataset<Signals>("signals"), …), once
// in the library.
#define LOCKSTEP_PLUGIN(...)                                                                    \
  extern "C" __attribute__((visibility("default"))) const lockstep::Plugin* lockstep_plugin() { \
    static const lockstep::PluginPart parts[] = {__VA_ARGS__};                                  \
    static const lockstep::Plugin plugin{lockstep::kPluginVersion, TORCH_VERSION, parts,        \
                                         static_cast<int>(sizeof parts / sizeof parts[0])};     \
    return &plugin;                                                                             \
  }

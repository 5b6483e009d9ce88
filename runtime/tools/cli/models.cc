#include <algorithm>
#include <iomanip>
#include <iostream>

#include "runtime/common/api/model_catalog.h"
#include "runtime/tools/cli/commands.h"

namespace lockstep::cli {

int Models() {
  const std::vector<api::ModelEntry> models = api::ModelCatalog();
  std::size_t width = 0;
  for (const api::ModelEntry& model : models) {
    for (const api::ModelField& field : model.fields) width = std::max(width, field.path.size() + 2);
  }
  const auto line = [&](const std::string& name, const std::string& text) {
    std::cout << std::left << std::setw(static_cast<int>(width)) << name << "  " << text << "\n";
  };
  std::cout << "Names for spec.training.model.name; below each its fields in spec.training.model, with their "
               "defaults.\n";
  for (const api::ModelEntry& model : models) {
    std::cout << "\n";
    line(std::string(api::NameOf(model.name)), model.what);
    line("  samples", model.samples);
    for (const api::ModelField& field : model.fields)
      line("  " + field.path, field.default_value.empty() ? "(required)" : field.default_value);
  }
  return 0;
}

}  // namespace lockstep::cli

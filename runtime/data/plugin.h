#pragma once
// Data sets from a shared library that was built against the SDK (runtime/sdk).

#include "runtime/data/dataset.h"

namespace lockstep::data {

// kInvalidArgument, with the field, where the library does not do (runtime/plugin), a constructor throws, or
// its sets do not keep to lockstep/dataset.h: the first sample of each is looked at here. Get of what comes
// back throws ErrorException, kDataLoss, where a later one does not.
[[nodiscard]] Result<Datasets> OpenPlugin(const api::PluginSpec& spec, uint64_t seed);

}  // namespace lockstep::data

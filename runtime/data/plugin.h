#pragma once
// Data sets from a shared library that was built against the SDK (runtime/sdk).

#include "runtime/data/dataset.h"
#include "runtime/data/retries.h"

namespace lockstep::data {

// kInvalidArgument, with the field, where the library does not do (runtime/plugin), a constructor or the first
// sample of a set throws twice, or its sets do not keep to lockstep/dataset.h; kUnavailable where what is
// thrown says that a file system is away. Get of what comes back throws ErrorException: kDataLoss where a later
// sample does not keep to it, kAborted where a file system is away for longer than the retries last, kInternal
// where the library throws anything else.
[[nodiscard]] Result<Datasets> OpenPlugin(const api::PluginSpec& spec, uint64_t seed, const Retries& retries);

}  // namespace lockstep::data

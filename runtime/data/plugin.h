#pragma once
// Data sets from a shared library that was built against the SDK (runtime/sdk).

#include "runtime/data/dataset.h"
#include "runtime/data/retries.h"

namespace lockstep::data {

// kInvalidArgument, with the field: the library is unusable (runtime/plugin), a constructor or the first
// sample of a set throws twice, or its sets violate lockstep/dataset.h. kUnavailable: the exception says that
// a file system is unavailable. Get of the result throws ErrorException: kDataLoss if a later sample violates
// dataset.h, kAborted if a file system is unavailable for longer than the retries last, kInternal if the
// library throws any other exception.
[[nodiscard]] Result<Datasets> OpenPlugin(const api::PluginSpec& spec, uint64_t seed, const Retries& retries);

}  // namespace lockstep::data

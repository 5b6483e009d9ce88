#pragma once
// Models from a file that Python's torch.jit.script(model).save(path) wrote.

#include "runtime/models/model.h"

namespace lockstep::models {

// Parameters and buffers have the names and values that they have in the file. kInvalidArgument, with the
// field and the file, where it is no TorchScript, cannot be trained, or does not fit the samples: the module
// is tried on two batches of different sizes.
[[nodiscard]] Result<std::shared_ptr<Model>> MakeTorchscriptModel(const api::TorchscriptSpec& spec,
                                                                  const ModelInput& input);

}  // namespace lockstep::models

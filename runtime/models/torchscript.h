#pragma once
// Models from a file that Python's torch.jit.script(model).save(path) wrote.

#include "runtime/models/model.h"

namespace lockstep::models {

// Parameters and buffers have the names and values of the file. kInvalidArgument, with the field and the
// file: it is not TorchScript, cannot be trained, or does not fit the samples. The module is tested on two
// batches of different sizes.
[[nodiscard]] Result<std::shared_ptr<Model>> MakeTorchscriptModel(const api::TorchscriptSpec& spec,
                                                                  const ModelInput& input);

}  // namespace lockstep::models

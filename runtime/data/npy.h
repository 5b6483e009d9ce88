#pragma once
// NumPy arrays (.npy, format versions 1 to 3: numpy.lib.format): train-inputs.npy, train-targets.npy,
// test-inputs.npy and test-targets.npy of a folder. Inputs [n, …] become float32 and are not scaled; targets
// [n] are integers from 0. The files are not trusted: header, shape and length are checked before memory is
// allocated for them.

#include <string>

#include "runtime/data/dataset.h"

namespace lockstep::data {

[[nodiscard]] Result<Datasets> OpenNpy(const std::string& folder);

}  // namespace lockstep::data

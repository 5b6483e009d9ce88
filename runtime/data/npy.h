#pragma once
// NumPy's arrays (.npy, versions 1 to 3 of the format: numpy.lib.format): train-inputs.npy,
// train-targets.npy, test-inputs.npy and test-targets.npy of a folder. Inputs [n, …] become float32 and are
// not scaled; targets [n] are whole numbers from 0. The files are treated as hostile: header, shape and
// length are checked before anything is allocated by them.

#include <string>

#include "runtime/data/dataset.h"

namespace lockstep::data {

[[nodiscard]] Result<Datasets> OpenNpy(const std::string& folder);

}  // namespace lockstep::data

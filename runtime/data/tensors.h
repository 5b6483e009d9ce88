#pragma once
// A data set that lies in memory as two tensors.

#include <vector>

#include "runtime/data/dataset.h"

namespace lockstep::data {

// float32 [n, …] and int64 [n]. Shared, not copied. `corrupt`: rows, ascending, that hold nothing.
[[nodiscard]] std::unique_ptr<Dataset> MakeTensorDataset(at::Tensor inputs, at::Tensor targets,
                                                         int64_t classes, std::vector<int64_t> corrupt = {});

// int64 [ids.size()], to select by.
[[nodiscard]] at::Tensor IndexOf(std::span<const int64_t> ids);

}  // namespace lockstep::data

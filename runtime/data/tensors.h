#pragma once
// A data set in memory, as two tensors.

#include <vector>

#include "runtime/data/dataset.h"

namespace lockstep::data {

// Inputs are float32 [n, …], targets int64 [n]. Shared, not copied. `corrupt`: rows without usable data,
// ascending.
[[nodiscard]] std::unique_ptr<Dataset> MakeTensorDataset(at::Tensor inputs, at::Tensor targets,
                                                         int64_t classes, std::vector<int64_t> corrupt = {});

// int64 [ids.size()], for index_select.
[[nodiscard]] at::Tensor IndexOf(std::span<const int64_t> ids);

}  // namespace lockstep::data

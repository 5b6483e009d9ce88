#pragma once
// Collectives with one tensor per rank, by their names in PyTorch 2.15. The GPU machines of tests/gpu have
// PyTorch 2.11, which has older names for the same operators. Called by the threads that may call the process
// group.

#include <torch/headeronly/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <vector>

namespace lockstep::comm {

inline c10::intrusive_ptr<c10d::Work> AllGatherSingle(c10d::ProcessGroup& group, at::Tensor& output,
                                                      at::Tensor& input) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  return group.all_gather_single(output, input);
#else
  return group._allgather_base(output, input);
#endif
}

inline c10::intrusive_ptr<c10d::Work> AllToAllSingle(c10d::ProcessGroup& group, at::Tensor& output,
                                                     at::Tensor& input, std::vector<int64_t>& output_rows,
                                                     std::vector<int64_t>& input_rows) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  return group.all_to_all_single(output, input, output_rows, input_rows);
#else
  return group.alltoall_base(output, input, output_rows, input_rows);
#endif
}

}  // namespace lockstep::comm

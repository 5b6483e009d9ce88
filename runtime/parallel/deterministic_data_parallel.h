#pragma once
// Replicated data parallelism whose sum has the same bits in every world: the gradients are equal, bit for
// bit, for 1, 2, 3 and any other number of ranks, and so is everything computed from them.
//
// Each micro-batch is a leaf of a fixed tree (tree_sum.h), and its gradient is computed separately. A rank
// sums its leaves as far as they form whole nodes of the tree. Addition is element-wise, so then each rank
// receives *its part* of the elements of all ranks' nodes (all-to-all) and sums them along the tree, and an
// all-gather distributes the summed parts.
//
// EasyScale keeps results independent of the world by fixing the logical workers and giving each its own sum
// and random numbers (Li et al., "EasyScale: Elastic Training with Consistent Accuracy and Improved
// Utilization on GPUs", SC 2023). The fixed tree over contiguous ranges comes from reproducible summation
// (Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", 2013, discuss why the order matters).
//
// Conditions on the caller: the micro-batches of a step and their random numbers must not depend on the
// world; kernels must not depend on the number of threads (so it is fixed); and only gradients may pass from
// a sample to the state (no running statistics). Processors for which LibTorch chooses different kernels
// (AVX2, AVX-512) round differently: equal bits need equal processors.
//
// Cost for G bytes of gradients, n micro-batches and w ranks: memory for at most log2(n) + 3 gradients in
// addition to the parameters' own, and (1 + 1/w) times this rank's nodes while they are sent. A rank's range
// is one node if w and n/w are powers of two, else at most 2 log2(n). It sends G (nodes + 1) (w-1)/w, which
// for one node equals a ring all-reduce, but all of it after the backward pass: nothing overlaps.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/strategy.h"

namespace lockstep::parallel {

// Takes over the gradients of `parameters` (they become views of one buffer) until it is destroyed. All ranks
// must hold equal parameters. kInvalidArgument if there is nothing to train, or the parameters have several
// types.
[[nodiscard]] Result<std::unique_ptr<Strategy>> MakeDeterministicDataParallel(
    std::shared_ptr<comm::Communicator> communicator, std::vector<at::Tensor> parameters);

}  // namespace lockstep::parallel

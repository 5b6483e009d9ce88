#pragma once
// Replicated data parallelism whose sum has the same bits in every world: the gradients are equal, bit for
// bit, for 1, 2, 3 and any other number of ranks, and so is everything computed from them.
//
// Each micro-batch is a leaf of a fixed tree (tree_sum.h) and its gradient is computed by itself. A rank adds
// up its leaves as far as they make whole nodes of the tree. Then, as addition is element by element, each
// rank receives *its part* of the elements of all ranks' nodes (all-to-all), adds them up along the tree, and
// the parts are gathered again (all-gather).
//
// The idea that results stay the same in any world when the logical workers do, and each one's sum and random
// numbers are its own, is EasyScale's (Li et al., "EasyScale: Elastic Training with Consistent Accuracy and
// Improved Utilization on GPUs", SC 2023); the fixed tree over contiguous ranges is that of reproducible
// summation (Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", 2013, discuss why the order
// matters).
//
// What the caller adds to it: the micro-batches of a step and their random numbers must not depend on the
// world, a kernel must not depend on the number of threads (so it is fixed), and nothing but gradients may
// pass from a sample to the state (no running statistics). Processors whose kernels LibTorch chooses
// differently (AVX2, AVX-512) round differently: equal bits need equal processors.
//
// Cost, for G bytes of gradients, n micro-batches and w ranks: memory for at most log2(n) + 3 gradients
// beside the parameters' own and (1 + 1/w) times this rank's nodes while they are sent. A rank's range is one
// node where w and n/w are powers of two, else at most 2 log2(n). It sends G (nodes + 1) (w-1)/w, which for
// one node is as much as a ring all-reduce, but all after the backward pass: nothing overlaps.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/strategy.h"

namespace lockstep::parallel {

// Takes over the gradients of `parameters` (they become views of one buffer) until it is destroyed. All ranks
// must hold equal parameters. kInvalidArgument where there is nothing to train, or parameters are of several
// types.
[[nodiscard]] Result<std::unique_ptr<Strategy>> MakeDeterministicDataParallel(
    std::shared_ptr<comm::Communicator> communicator, std::vector<at::Tensor> parameters);

}  // namespace lockstep::parallel

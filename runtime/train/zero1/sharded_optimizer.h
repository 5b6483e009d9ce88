#pragma once
// An optimizer whose state is divided over the ranks of the round (ZeRO stage 1: Rajbhandari et al., "ZeRO:
// Memory Optimizations Toward Training Trillion Parameter Models", 2020). Each rank keeps the state of its
// part of the elements, updates that part of the parameters, and the ranks gather the parts. Gradients are
// summed on all ranks as without it, so norm, clipping and loss scale are the same numbers.
//
// A step is a transaction. Collecting the parts may fail on some ranks and succeed on others. Until it has
// succeeded on this rank, the rank also keeps its part from before the step. The next round decides from which
// of the two states all ranks continue (held_shards.h).
//
// With `copies`, each part is also kept, and updated, by ranks in the pods before that of its owner: every
// rank has all gradients, so this costs no communication.
//
// Step thread. kAborted: the round broke. kInternal: LibTorch failed. After either error this object still
// holds all that it held before.

#include <functional>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/train/shards/held_shards.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

class ShardedOptimizer final : public HeldShards {
 public:
  // The maximum number of bytes that all ranks together send at once in a step.
  static constexpr int64_t kGatherChunkBytes = int64_t{16} << 20;

  // As MakeOptimizer. kInvalidArgument if the parameters cannot be divided by elements.
  [[nodiscard]] static Result<std::unique_ptr<ShardedOptimizer>> Make(const api::OptimizerSpec& spec,
                                                                      std::vector<NamedTensor> parameters,
                                                                      Copies copies);

  // All ranks call this together. Updates all parameters from their gradients and overwrites the gradients:
  // the updated parts of the other ranks arrive in gradient memory, chunk by chunk, before they are copied to
  // the parameters.
  [[nodiscard]] Result<void> Step(comm::Communicator& communicator, double learning_rate);
  // All ranks call this together. The parameters and their averages; empty without weightAverage.
  [[nodiscard]] Result<std::vector<WeightAndAverage>> Averages(comm::Communicator& communicator) const;
  // Counts a step that changes nothing because it was not finite. Each rank does this alone, so other ranks
  // may not have seen the step yet.
  void Skip();
  // Sets the whole state to that before the first step.
  void StartAfresh();

 private:
  ShardedOptimizer(const api::OptimizerSpec& spec, std::vector<NamedTensor> parameters, Copies copies);

  [[nodiscard]] std::vector<Ranges> Cut(int holders) const override;
  // Views of the elements of a range in some tensors.
  using Views = std::function<std::vector<at::Tensor>(const Range&)>;
  [[nodiscard]] std::vector<at::Tensor> ViewsOf(const Range& range) const;
  [[nodiscard]] at::Tensor FlatParameters(const Range& range) const;
  [[nodiscard]] std::vector<at::Tensor> GradientsOf(const Range& range) const;
  void Update(Shard& shard, double learning_rate) const;
  // All ranks call this: collects all elements. Each rank gives those of its part.
  [[nodiscard]] Result<void> Gather(comm::Communicator& communicator, const Views& given,
                                    const Views& into) const;

  const api::OptimizerSpec spec_;
  const std::vector<NamedTensor> parameters_;
};

}  // namespace lockstep::train

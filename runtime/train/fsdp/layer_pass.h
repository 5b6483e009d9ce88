#pragma once
// One pass of a micro-batch through sharded layers, forward and backward. The ranks gather each unit before
// its layer needs it, while the layer before computes, and free it afterwards; on the way back they also sum
// its gradient, of which each rank keeps its piece. The collectives are those of a sharding group.
//
// All ranks of the round make the same collectives in the same order, which depends on the layers alone: a
// layer is opened on the way back when the gradient of its output arrives, and layers that no gradient reaches
// are opened when the next one is. A rank without samples makes the pass with undefined inputs. Step thread.

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/train/fsdp/sharded_layers.h"

namespace lockstep::train {

class LayerPass {
 public:
  LayerPass(ShardedLayers& layers, comm::Communicator& communicator)
      : layers_(layers), communicator_(communicator.subgroup()), units_(layers.units()) {}
  // Frees what is gathered.
  ~LayerPass();
  LayerPass(const LayerPass&) = delete;
  LayerPass& operator=(const LayerPass&) = delete;

  // Returns the outputs; undefined if `inputs` are. With gradients the caller's mode must be so, and Backward
  // must follow before this object and the outputs are dropped.
  [[nodiscard]] Result<at::Tensor> Forward(const at::Tensor& inputs, bool with_gradients);
  // `loss` is undefined if the inputs were. Afterwards the gradients of this rank's pieces contain those of
  // all ranks of its group.
  [[nodiscard]] Result<void> Backward(const at::Tensor& loss);
  // Seconds that this rank waited for collectives.
  [[nodiscard]] double waited_seconds() const { return waited_seconds_; }

 private:
  struct Gathering {
    at::Tensor all{};
    std::optional<comm::Communicator::Pending> pending{};
    bool is_shown = false;
  };
  struct Summing {
    std::size_t unit;
    at::Tensor received;
    comm::Communicator::Pending pending;
  };

  [[nodiscard]] Result<void> StartGather(const UnitNumbers& units);
  [[nodiscard]] Result<void> FinishGather(const UnitNumbers& units);
  void Free(const UnitNumbers& units);
  void Free(std::size_t unit);
  // Ends the sums that were started before.
  [[nodiscard]] Result<void> StartSum(const UnitNumbers& units);
  [[nodiscard]] Result<void> FinishSum();
  // On the way back: opens all layers down to this one.
  [[nodiscard]] Result<void> OpenDownTo(std::size_t layer);
  [[nodiscard]] Result<void> Open(std::size_t layer);
  // Called by autograd: throws after an error, which Backward returns.
  void OnGradientOf(std::size_t layer);
  [[nodiscard]] Result<void> Wait(comm::Communicator::Pending& pending);

  ShardedLayers& layers_;
  comm::Communicator& communicator_;  // of the group
  std::vector<Gathering> units_;
  std::size_t open_ = 0;  // on the way back: the layers from this one on are open
  std::vector<Summing> summing_;
  std::optional<Error> failed_;
  double waited_seconds_ = 0;
};

}  // namespace lockstep::train

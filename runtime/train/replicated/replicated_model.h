#pragma once
// A state whose model every rank holds. Gradients are summed over the ranks, and all apply the same optimizer
// step. Subclasses hold the optimizer's state: all of it on every rank (replicated_state.h), or parts
// (zero1_state.h).
//
// Sync makes the state equal on all ranks at the lowest cost: nothing is sent if all ranks hold the same
// state, otherwise a rank with the highest step broadcasts it chunk by chunk. If the source dies half-way, no
// rank may lose a state from which training could continue, and a rank must not need memory for two states.
// So what a rank does with a chunk depends on what it holds:
//   the same state     Drops it: it participates because a broadcast is one operation of all ranks.
//   no step            Writes it into its own tensors. If the source dies, they are a mixture. The step is -1
//                      from the first write to the last, so no rank continues from them, and `is_torn` is set
//                      until then, so they are not taken for a fresh state either.
//   another state      The same where ranks on two hosts hold the best state: the next round has it from the
//                      other one. Otherwise keeps each chunk in host memory, as its own state is the newest
//                      one if the source dies. Its tensors are written when the last chunk has arrived, and
//                      the step is -1 meanwhile.
// So a rank that has the state needs memory for one chunk (broadcast.h), and any other rank for its state and
// one chunk. A rank that is behind, while only one host holds the best state, needs additional host memory
// for one state, but no device memory.

#include <memory>
#include <vector>

#include "runtime/train/replicated/replicas.h"
#include "runtime/train/state/training_state.h"

namespace lockstep::train {

class ReplicatedModel : public TrainingState {
 public:
  [[nodiscard]] std::vector<NamedTensor> Tensors() const override { return With(Moments()); }
  [[nodiscard]] std::vector<NamedTensor> Replicated() const override { return With(HeldMoments()); }
  [[nodiscard]] StateMemory Memory(int world) const override;
  [[nodiscard]] Result<StateSource> Sync(comm::Communicator& communicator, const Restore& restore) override;
  [[nodiscard]] Result<void> SyncBuffers(comm::Communicator& communicator) override;
  [[nodiscard]] Result<void> StartAfresh() override;
  [[nodiscard]] std::unique_ptr<Stepper> MakeStepper(const StepContext& context) override;

  // A checksum of parameters, loss scale, and the optimizer's state as far as every rank holds it. It is
  // equal on all ranks after each step (or window of steps), because all apply the same gradient. Buffers are
  // excluded, because their statistics come from each rank's own samples.
  [[nodiscard]] int64_t Digest() const;

  // The parameters that have a gradient.
  [[nodiscard]] const std::vector<at::Tensor>& trained() const { return trained_; }
  // `model` itself, then those on the process's other devices.
  [[nodiscard]] const std::vector<Replica>& replicas() const { return replicas_; }

  // Updates the parameters from the mean gradients. `peers`: all ranks call it together; null: this rank
  // alone.
  [[nodiscard]] virtual Result<void> Update(comm::Communicator* peers, double learning_rate) = 0;
  // Counts a step that changes nothing because it was not finite.
  virtual void SkipUpdate() {}

 protected:
  explicit ReplicatedModel(const StateInputs& inputs)
      : TrainingState(inputs), devices_(inputs.devices.begin(), inputs.devices.end()) {}
  // Makes the model on all devices. Errors name the field. Returns the parameters that have a gradient.
  [[nodiscard]] Result<std::vector<NamedTensor>> BuildModel();

  // The optimizer's state that every rank holds, and all of it, of which tensors may have no data.
  [[nodiscard]] virtual std::vector<NamedTensor> HeldMoments() const = 0;
  [[nodiscard]] virtual std::vector<NamedTensor> Moments() const { return HeldMoments(); }
  // Everything that a checkpoint contains, in order, with these tensors of the optimizer.
  [[nodiscard]] std::vector<NamedTensor> With(const std::vector<NamedTensor>& moments) const;
  // Parts of Sync that all ranks call: first, the step that this rank offers to the others (-1: none); at the
  // end, when all hold the same step, what else belongs to it.
  [[nodiscard]] virtual Result<int64_t> Offer(comm::Communicator& /*communicator*/) { return step; }
  [[nodiscard]] virtual Result<void> Settle(comm::Communicator& /*communicator*/) { return {}; }

 private:
  // Tensors of one device.
  struct Held {
    std::vector<NamedTensor> parameters{};
    std::vector<NamedTensor> buffers{};
    std::vector<NamedTensor> moments{};
  };
  // Of the first device, with modelparallel of each.
  [[nodiscard]] std::vector<Held> HeldByDevice() const;
  [[nodiscard]] StateMemory MemoryOf(const Held& held, int world) const;
  struct RankState;
  [[nodiscard]] Result<std::vector<RankState>> ExchangeRankStates(comm::Communicator& communicator,
                                                                  int64_t offered) const;
  // The ranks hold no complete state: all restore, or start afresh.
  [[nodiscard]] Result<StateSource> SyncAtStart(comm::Communicator& communicator, const Restore& restore,
                                                std::vector<RankState>& all);
  void TakeEvaluations(StateSource source, const std::vector<RankState>& all);
  [[nodiscard]] Result<void> AddReplica(std::shared_ptr<Model> replica, at::Device on);

  const std::vector<at::Device> devices_;
  std::vector<at::Tensor> trained_;
  std::vector<Replica> replicas_;
};

}  // namespace lockstep::train

#pragma once
// The part of a checkpoint that a rank reads, and the memory for it until all ranks have read theirs. What
// all ranks hold is read in shares, which the ranks then send to each other. Subclasses add what a rank alone
// holds. Step thread.

#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/part_reader.h"
#include "runtime/train/state/broadcast.h"
#include "runtime/train/state/training_state.h"

namespace lockstep::train {

class PartToLoad {
 public:
  // `may_write_in_place`: a state without a step is no valid one, so what is read may go directly into its
  // tensors. Then the state is torn from here on.
  PartToLoad(TrainingState& state, const LoadRequest& request, bool may_write_in_place);
  virtual ~PartToLoad() = default;
  PartToLoad(const PartToLoad&) = delete;
  PartToLoad& operator=(const PartToLoad&) = delete;

  [[nodiscard]] const std::vector<checkpoint::WantedPart>& wanted() const { return wanted_; }
  // All ranks call it together when each has read its part. The state then has `step` steps. After an error
  // it may be torn.
  [[nodiscard]] Result<void> MoveInto(int64_t step, comm::Communicator& communicator);

 protected:
  // What a rank alone holds: sets it, or with only_weights its state before the first step.
  [[nodiscard]] virtual Result<void> TakeDivided(int64_t /*step*/) { return {}; }
  [[nodiscard]] bool only_weights() const { return request_.only_weights; }
  // Whether the tensor is to be loaded.
  [[nodiscard]] bool IsTaken(const std::string& name) const;
  // Requests the bytes of the tensor from element `first` on into `room`.
  void Want(const std::string& tensor, const at::Tensor& room, int64_t first = 0);
  // Host memory for the tensor, which is requested.
  [[nodiscard]] at::Tensor RoomFor(const NamedTensor& named);

 private:
  // Resets what is not loaded to its state before the first step.
  [[nodiscard]] Result<void> ClearOptimizer() const;

  TrainingState& state_;
  const LoadRequest request_;
  const std::set<std::string> weights_;
  std::vector<checkpoint::WantedPart> wanted_;
  std::vector<FromRank> replicated_;
};

}  // namespace lockstep::train

#include "runtime/train/state/part_to_load.h"

#include <ATen/ATen.h>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/save.h"
#include "runtime/comm/torch_error.h"

namespace lockstep::train {

PartToLoad::PartToLoad(TrainingState& state, const LoadRequest& request, bool may_write_in_place)
    : state_(state), request_(request), weights_(state.WeightNames()) {
  std::vector<NamedTensor> replicated = state.Replicated();
  std::erase_if(replicated, [&](const NamedTensor& named) {
    return !IsTaken(named.name) || (named.name == kLossScaleName && !request.has_loss_scale);
  });
  const std::vector<int> readers = checkpoint::DivideTensors(replicated, request.world);
  bool is_in_place = false;
  for (std::size_t i = 0; i < replicated.size(); ++i) {
    const at::Tensor& target = replicated[i].tensor;
    at::Tensor source;
    // The reader's threads write into host memory only.
    const bool in_place = may_write_in_place && state.step < 0 && target.is_cpu();
    if (readers[i] == request.rank && in_place) {
      source = target;
      Want(replicated[i].name, target);
      is_in_place = true;
    } else if (readers[i] == request.rank) {
      source = RoomFor(replicated[i]);
    }
    replicated_.push_back({target, readers[i], source});
  }
  if (is_in_place) state.Tear();
}

Result<void> PartToLoad::MoveInto(int64_t step, comm::Communicator& communicator) {
  LOCKSTEP_TRY(BroadcastTensors(communicator, replicated_, Receiving::kInPlace, [&] { state_.Tear(); }));
  LOCKSTEP_TRY(ClearOptimizer());
  LOCKSTEP_TRY(TakeDivided(step));
  state_.Complete(step);
  return {};
}

// The state may be a mixture, because the source of an earlier broadcast died half-way.
Result<void> PartToLoad::ClearOptimizer() const {
  return comm::CatchTorch(ErrorCode::kInternal, "clearing the optimizer", [&] {
    const at::NoGradGuard no_grad;
    for (const NamedTensor& named : state_.Replicated()) {
      if (!IsTaken(named.name) && named.name != kLossScaleName) named.tensor.zero_();
    }
  });
}

bool PartToLoad::IsTaken(const std::string& name) const {
  if (checkpoint::IsOfAverage(name) && !request_.has_average) return false;
  return !only_weights() || weights_.contains(name);
}

void PartToLoad::Want(const std::string& tensor, const at::Tensor& room, int64_t first) {
  const int64_t element = room.element_size();
  wanted_.push_back({tensor, first * element, {static_cast<char*>(room.data_ptr()), room.nbytes()}});
}

at::Tensor PartToLoad::RoomFor(const NamedTensor& named) {
  at::Tensor room =
      at::empty(named.tensor.sizes(), named.tensor.options().device(at::kCPU).requires_grad(false));
  Want(named.name, room);
  return room;
}

}  // namespace lockstep::train

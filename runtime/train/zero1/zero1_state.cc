#include "runtime/train/zero1/zero1_state.h"

#include <ATen/ATen.h>

#include <utility>

#include "runtime/checkpoint/save.h"
#include "runtime/train/state/part_to_load.h"

namespace lockstep::train {
namespace {

// The range of the optimizer's state that the rank reads.
class Zero1Part final : public PartToLoad {
 public:
  Zero1Part(Zero1State& state, const LoadRequest& request)
      : PartToLoad(state, request, /*may_write_in_place=*/true), shards_(state.shards()) {
    if (only_weights()) return;
    range_ = shards_.PartOf(request.rank, request.world);
    const auto pieces = shards_.PiecesOf(range_);
    const std::size_t parameters = shards_.parameters();
    const auto& described = shards_.described();
    for (std::size_t first = 0; first < described.size(); first += parameters) {
      const auto options = described[first].tensor.options().device(at::kCPU);
      const at::Tensor& slot = slots_.emplace_back(at::zeros({range_.size()}, options));
      int64_t begin = 0;
      for (const auto& [parameter, piece] : pieces) {
        const std::string& name = described[first + parameter].name;
        if (IsTaken(name)) Want(name, slot.narrow(0, begin, piece.size()), piece.begin);
        begin += piece.size();
      }
    }
  }

 private:
  Result<void> TakeDivided(int64_t step) override {
    only_weights() ? shards_.StartAfresh() : shards_.Load(step, range_, std::move(slots_));
    return {};
  }

  ShardedOptimizer& shards_;
  Range range_;
  std::vector<at::Tensor> slots_;
};

}  // namespace

Result<void> Zero1State::Build() {
  LOCKSTEP_TRY(std::vector<NamedTensor> trained, BuildModel());
  LOCKSTEP_TRY(shards_, ShardedOptimizer::Make(spec().optimizer, std::move(trained),
                                               {spec().zero1.copies, ranks_in_pod_}));
  return {};
}

// A step keeps moments and parameters of its parts as they were before.
StateMemory Zero1State::Memory(int world) const {
  StateMemory memory = ReplicatedModel::Memory(world);
  const int64_t slot = shards_->LargestSlotBytes(world);
  memory.optimizer = shards_->slot_count() * slot;
  memory.undo += memory.optimizer + slot;
  return memory;
}

Result<void> Zero1State::StartAfresh() {
  LOCKSTEP_TRY(ReplicatedModel::StartAfresh());
  shards_->StartAfresh();
  return {};
}

// Parts are sent to the ranks that write them.
Result<PartToSave> Zero1State::Save(comm::Communicator& communicator) {
  const std::vector<int> writers = checkpoint::DivideTensors(Tensors(), communicator.world());
  const auto first = writers.begin() + static_cast<std::ptrdiff_t>(parameters.size() + buffers.size());
  const auto count = static_cast<std::ptrdiff_t>(shards_->described().size());
  LOCKSTEP_TRY(const auto moments, shards_->Collect(communicator, {first, first + count}));
  return PartToSave{.tensors = With(moments)};
}

Result<std::vector<NamedTensor>> Zero1State::Whole() const {
  LOCKSTEP_TRY(const auto moments, shards_->Whole());
  return With(moments);
}

std::unique_ptr<PartToLoad> Zero1State::Load(const LoadRequest& request) {
  return std::make_unique<Zero1Part>(*this, request);
}

void Zero1State::Tear() {
  ReplicatedModel::Tear();
  shards_->ForgetVersion();
}

Result<int64_t> Zero1State::Offer(comm::Communicator& communicator) {
  LOCKSTEP_TRY(whole_, shards_->Agree(communicator));
  return whole_ == shards_->version() ? step : -1;
}

Result<void> Zero1State::Settle(comm::Communicator& communicator) {
  const Version restored{step, communicator.place().round};
  return shards_->Redistribute(communicator, whole_.value_or(restored));
}

}  // namespace lockstep::train

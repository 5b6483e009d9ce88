#include "runtime/train/sync.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <map>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/train/stage_sync.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;
using comm::Communicator;

// Rank 0 may read a large checkpoint first.
constexpr std::chrono::minutes kRestoreLimit{30};

// What a rank says about itself.
struct Standing {
  int64_t step = -1;
  int64_t digest = 0;
  EvaluationRecord evaluations;
};

// `step`: the one whose state this rank offers to the others; -1: none.
Result<std::vector<Standing>> TellEachOther(Communicator& communicator, const TrainingState& state,
                                            int64_t step,
                                            std::optional<std::chrono::milliseconds> limit = std::nullopt) {
  const EvaluationRecord& record = state.evaluations;
  const std::vector<int64_t> mine = {step,
                                     state.Digest(),
                                     record.step,
                                     std::bit_cast<int64_t>(record.newest),
                                     std::bit_cast<int64_t>(record.best),
                                     record.without_improvement};
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(mine, limit));
  std::vector<Standing> all;
  for (const auto& row : rows) {
    all.push_back(
        {row.at(0),
         row.at(1),
         {row.at(2), std::bit_cast<double>(row.at(3)), std::bit_cast<double>(row.at(4)), row.at(5)}});
  }
  return all;
}

int RankOfHighest(const std::vector<Standing>& all) {
  const auto highest = std::max_element(all.begin(), all.end(),
                                        [](const Standing& a, const Standing& b) { return a.step < b.step; });
  return static_cast<int>(highest - all.begin());
}

bool AllHoldTheSame(const std::vector<Standing>& all) {
  return std::all_of(all.begin(), all.end(), [&](const Standing& standing) {
    return standing.step == all.front().step && standing.digest == all.front().digest;
  });
}

// A few large buffers, one for each type on each device, instead of many small tensors.
class FlatTensors {
 public:
  explicit FlatTensors(const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& named : tensors) {
      groups_[{named.tensor.device().type(), named.tensor.scalar_type()}].push_back(named.tensor);
    }
  }

  std::vector<at::Tensor> Pack() const {
    std::vector<at::Tensor> buffers;
    for (const auto& [type, tensors] : groups_) {
      std::vector<at::Tensor> flat;
      for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape(-1));
      buffers.push_back(at::cat(flat));
    }
    return buffers;
  }

  std::vector<at::Tensor> Empty() const {
    std::vector<at::Tensor> buffers;
    for (const auto& [type, tensors] : groups_) {
      int64_t size = 0;
      for (const at::Tensor& tensor : tensors) size += tensor.numel();
      buffers.push_back(at::empty({size}, tensors.front().options()));
    }
    return buffers;
  }

  void Unpack(const std::vector<at::Tensor>& buffers) const {
    std::size_t i = 0;
    for (const auto& [type, tensors] : groups_) {
      int64_t begin = 0;
      for (const at::Tensor& tensor : tensors) {
        tensor.copy_(buffers[i].narrow(0, begin, tensor.numel()).view(tensor.sizes()));
        begin += tensor.numel();
      }
      ++i;
    }
  }

 private:
  std::map<std::pair<at::DeviceType, at::ScalarType>, std::vector<at::Tensor>> groups_;
};

Result<void> BroadcastTensors(Communicator& communicator, const std::vector<NamedTensor>& tensors, int root) {
  const at::NoGradGuard no_grad;
  const FlatTensors flat(tensors);
  const bool is_source = communicator.rank() == root;
  std::vector<at::Tensor> buffers;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing the state",
                          [&] { buffers = is_source ? flat.Pack() : flat.Empty(); }));
  LOCKSTEP_TRY(communicator.Broadcast(buffers, root));
  if (is_source) return {};
  return CatchTorch(ErrorCode::kInternal, "unpacking the state", [&] { flat.Unpack(buffers); });
}

// Nobody holds state, or not all of a sharded one: rank 0 restores or starts afresh, the others learn which.
Result<StateSource> Begin(Communicator& communicator, TrainingState& state, const Restore& restore,
                          std::vector<Standing>& all) {
  if (communicator.rank() == 0) {
    LOCKSTEP_TRY(const bool restored, restore(state));
    if (!restored) state.step = 0;
  }
  const int64_t offered = communicator.rank() == 0 ? state.step : -1;
  LOCKSTEP_TRY(all, TellEachOther(communicator, state, offered, kRestoreLimit));
  const bool fresh = all.front().step == 0;
  // The same seed made the same parameters everywhere; only then is there nothing to send.
  if (fresh) {
    for (Standing& standing : all) standing.step = 0;
    state.step = 0;
  }
  return fresh ? StateSource::kFresh : StateSource::kCheckpoint;
}

// Those that belong to the state: all ranks must know the same, as what is to be done next follows from them.
void TakeEvaluations(StateSource source, const std::vector<Standing>& all, int64_t step,
                     EvaluationRecord& mine) {
  const bool began = source == StateSource::kFresh || source == StateSource::kCheckpoint;
  if (began) {
    mine = all.front().evaluations;
    return;
  }
  if (mine.step > step) mine = {};  // of steps that will be made again
  for (const Standing& standing : all) {
    if (standing.step == step && standing.evaluations.step > mine.step) mine = standing.evaluations;
  }
}

}  // namespace

std::string_view NameOf(StateSource source) {
  switch (source) {
    case StateSource::kKept: return "kept";
    case StateSource::kPeer: return "peer";
    case StateSource::kCopy: return "copy";
    case StateSource::kCheckpoint: return "checkpoint";
    case StateSource::kFresh: return "fresh";
  }
  return "";
}

Result<StateSource> SyncState(Communicator& communicator, TrainingState& state, const Restore& restore) {
  if (state.staged != nullptr) return SyncStages(communicator, state, restore);
  int64_t offered = state.step;
  std::optional<Version> whole;
  if (state.sharded != nullptr) {
    LOCKSTEP_TRY(whole, state.sharded->Agree(communicator));
    if (whole != state.sharded->version()) offered = -1;
  }
  LOCKSTEP_TRY(std::vector<Standing> all, TellEachOther(communicator, state, offered));
  StateSource source = StateSource::kKept;
  if (all.at(static_cast<std::size_t>(RankOfHighest(all))).step < 0) {
    LOCKSTEP_TRY(source, Begin(communicator, state, restore, all));
  }
  const int root = RankOfHighest(all);
  const Standing& best = all.at(static_cast<std::size_t>(root));
  if (!AllHoldTheSame(all)) {
    const bool diverged = best.step == state.step && best.digest != state.Digest();
    if (diverged) log::Warning("state differs at the same step; taking the peer's", {{"step", state.step}});
    LOCKSTEP_TRY(BroadcastTensors(communicator, state.Replicated(), root));
    if (source == StateSource::kKept && communicator.rank() != root) source = StateSource::kPeer;
  }
  state.step = best.step;
  TakeEvaluations(source, all, best.step, state.evaluations);
  if (state.sharded != nullptr) {
    const Version restored{best.step, communicator.place().round};
    LOCKSTEP_TRY(state.sharded->Deal(communicator, whole.value_or(restored)));
  }
  return source;
}

Result<void> SyncBuffers(Communicator& communicator, TrainingState& state) {
  if (state.buffers.empty() || communicator.world() == 1) return {};
  if (state.staged != nullptr) return state.staged->SyncBuffers(communicator);
  return BroadcastTensors(communicator, state.buffers, 0);
}

}  // namespace lockstep::train

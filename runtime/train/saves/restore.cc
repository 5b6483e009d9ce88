#include "runtime/train/saves/restore.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/train/state/part_to_load.h"

namespace lockstep::train {
namespace {

using checkpoint::Checkpointer;
using checkpoint::Manifest;
using checkpoint::TensorPlace;
using comm::CatchTorch;
using comm::Communicator;

// Another rank may have a large part to read, or rank 0 may wait for another job to leave.
constexpr std::chrono::minutes kLimit{30};
// Rank 0 sends this instead of a step.
constexpr int64_t kNoCheckpoint = -1;
constexpr int64_t kStoreAway = -2;

// The outcome of a rank's part; the worst one counts for all ranks.
enum ReadOutcome : int64_t { kRead, kDamaged, kAway, kFailed };

ReadOutcome OutcomeOf(const Result<void>& read) {
  if (read.ok()) return kRead;
  if (checkpoint::IsDamage(read.error())) return kDamaged;
  return read.error().IsTransient() ? kAway : kFailed;
}

ErrorCode CodeOf(int64_t outcome) {
  if (outcome == kDamaged) return ErrorCode::kDataLoss;
  return outcome == kAway ? ErrorCode::kUnavailable : ErrorCode::kAborted;
}

// "optimizer.exp_avg" of "optimizer.exp_avg.hidden.weight"; empty if the tensor belongs to no optimizer.
std::string SlotOf(const std::string& tensor) {
  if (tensor == kLossScaleName) return tensor;
  for (const std::string_view prefix : {"optimizer.", "outer."}) {
    if (tensor.starts_with(prefix)) return tensor.substr(0, tensor.find('.', prefix.size()));
  }
  return {};
}

// "hidden.weight" of "optimizer.exp_avg.hidden.weight"; empty if the tensor belongs to no optimizer.
std::string ParameterOf(const std::string& tensor) {
  const std::string slot = SlotOf(tensor);
  return slot.empty() || slot == tensor ? std::string() : tensor.substr(slot.size() + 1);
}

bool IsStored(const Manifest& manifest, const std::string& name) {
  return std::any_of(manifest.shards.begin(), manifest.shards.end(), [&](const auto& shard) {
    return std::any_of(shard.tensors.begin(), shard.tensors.end(),
                       [&](const TensorPlace& place) { return place.name == name; });
  });
}

// Of tensors or their places.
template <typename Tensors>
bool HaveAverage(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const auto& tensor) { return checkpoint::IsOfAverage(tensor.name); });
}

bool HasAverage(const Manifest& manifest) {
  return std::any_of(manifest.shards.begin(), manifest.shards.end(),
                     [](const auto& shard) { return HaveAverage(shard.tensors); });
}

class Restoring {
 public:
  Restoring(Communicator& communicator, Checkpointer& checkpointer, TrainingState& state)
      : communicator_(communicator), checkpointer_(checkpointer), state_(state) {}

  // Rank 0: selects the checkpoint and sends its step to the other ranks.
  Result<bool> Lead(const std::function<Result<void>()>& claim) {
    const Result<std::optional<Manifest>> found = ClaimAndFind(claim);
    if (!found.ok() && found.error().IsTransient() && !is_known_to_all_) {
      LOCKSTEP_TRY(communicator_.store()->Set(KeyOf(kStoreAway, 0), found.error().message));
      LOCKSTEP_TRY(AnnounceStep(kStoreAway));
    }
    if (!found.ok()) return found.error();
    if (found->has_value()) return Finish(**found);
    LOCKSTEP_TRY(AnnounceStep(kNoCheckpoint));
    return false;
  }

  Result<bool> Follow() {
    while (true) {
      LOCKSTEP_TRY(const int64_t step, AnnounceStep(kNoCheckpoint));
      if (step == kNoCheckpoint) return false;
      if (step == kStoreAway) return Error{ErrorCode::kUnavailable, "rank 0: " + ReasonOf(kStoreAway, 0)};
      const Result<Manifest> manifest = checkpointer_.Find(step);
      const Result<void> read = ReadTogether(step, manifest);
      if (read.ok()) return Finish(*manifest);
      if (!checkpoint::IsDamage(read.error())) return read.error();
    }
  }

 private:
  Result<std::optional<Manifest>> ClaimAndFind(const std::function<Result<void>()>& claim) {
    LOCKSTEP_TRY(claim());
    return checkpointer_.Resume([this](const Manifest& manifest) -> Result<void> {
      LOCKSTEP_TRY(AnnounceStep(manifest.step));
      Result<void> read = ReadTogether(manifest.step, manifest);
      // If it is damaged, the others wait for the next one.
      is_known_to_all_ = !read.ok() && !checkpoint::IsDamage(read.error());
      return read;
    });
  }

  // Sends rank 0's step to the other ranks, and returns it.
  Result<int64_t> AnnounceStep(int64_t step) {
    LOCKSTEP_TRY(const auto rows, communicator_.AllGather({&step, 1}, kLimit));
    return rows.front().front();
  }

  // Returns the same verdict on all ranks: read by all, damaged, or not read.
  Result<void> ReadTogether(int64_t step, const Result<Manifest>& manifest) {
    Result<void> mine = manifest.ok() ? Read(*manifest) : Result<void>(manifest.error());
    const int64_t own = OutcomeOf(mine);
    if (!mine.ok())
      LOCKSTEP_TRY(communicator_.store()->Set(KeyOf(step, communicator_.rank()), mine.error().message));
    LOCKSTEP_TRY(const auto rows, communicator_.AllGather({&own, 1}, kLimit));
    const auto worst = std::max_element(rows.begin(), rows.end());
    if (worst->front() == own) return mine;
    const auto rank = static_cast<int>(worst - rows.begin());
    std::string reason = ReasonOf(step, rank);
    // Damage is reported once, whichever rank reads the damaged object, so its reason names no rank.
    if (worst->front() != kDamaged) reason = "rank " + std::to_string(rank) + ": " + reason;
    return Error{CodeOf(worst->front()), std::move(reason)};
  }

  // Why the given rank could not read its part.
  std::string ReasonOf(int64_t step, int rank) {
    const auto reason = communicator_.store()->Get(KeyOf(step, rank));
    return reason.ok() && reason->has_value() ? **reason : "a rank could not read its part";
  }

  static std::string KeyOf(int64_t step, int rank) {
    return "restore/" + std::to_string(step) + "/" + std::to_string(rank);
  }

  Result<void> Read(const Manifest& manifest) {
    LOCKSTEP_TRY(CheckFits(manifest));
    LOCKSTEP_TRY(part_, CatchTorch(ErrorCode::kInternal, "memory for the state", [&] {
                   return state_.Load({.rank = communicator_.rank(),
                                       .world = communicator_.world(),
                                       .only_weights = checkpointer_.TakesOnlyWeightsOf(manifest),
                                       .has_average = HasAverage(manifest),
                                       .has_loss_scale = IsStored(manifest, kLossScaleName)});
                 }));
    LOCKSTEP_TRY(bytes_read_, checkpointer_.Read(manifest, part_->wanted()));
    return {};
  }

  Result<void> CheckFits(const Manifest& manifest) const {
    const bool only_weights = checkpointer_.TakesOnlyWeightsOf(manifest);
    const bool has_average = HasAverage(manifest);
    const std::set<std::string> weights = state_.WeightNames();
    std::map<std::string, const TensorPlace*> stored;
    std::set<std::string> slots;
    for (const auto& shard : manifest.shards) {
      for (const TensorPlace& place : shard.tensors) {
        stored[place.name] = &place;
        slots.insert(SlotOf(place.name));
      }
    }
    const std::vector<NamedTensor> targets = state_.Tensors();
    for (const NamedTensor& target : targets) {
      const auto found = stored.find(target.name);
      const bool is_weight = weights.contains(target.name);
      if (only_weights && !is_weight) continue;
      if (found == stored.end() && target.name == kLossScaleName) continue;
      if (!has_average && checkpoint::IsOfAverage(target.name)) continue;
      if (found == stored.end())
        return DoesNotFit(manifest, target.name, WhyMissing(target.name, slots), is_weight);
      const TensorPlace& place = *found->second;
      if (target.tensor.sizes() != place.shape || checkpoint::DtypeOf(target.tensor) != place.dtype)
        return DoesNotFit(manifest, target.name, "has another shape or type", is_weight);
      stored.erase(found);
    }
    stored.erase(kLossScaleName);  // this precision has no loss scale
    if (!HaveAverage(targets))
      std::erase_if(stored, [](const auto& entry) { return checkpoint::IsOfAverage(entry.first); });
    // A parameter that was trained until then and is frozen now needs no optimizer state.
    const std::set<std::string> frozen = FrozenNames();
    std::erase_if(stored, [&](const auto& entry) { return frozen.contains(ParameterOf(entry.first)); });
    if (only_weights) std::erase_if(stored, [](const auto& entry) { return !SlotOf(entry.first).empty(); });
    if (stored.empty()) return {};
    const std::string& name = stored.begin()->first;
    return DoesNotFit(manifest, name, "is stored, but not part of this training", SlotOf(name).empty());
  }

  std::set<std::string> FrozenNames() const {
    std::set<std::string> names;
    for (const NamedTensor& parameter : state_.parameters) {
      if (!parameter.tensor.requires_grad()) names.insert(parameter.name);
    }
    return names;
  }

  static std::string WhyMissing(const std::string& tensor, const std::set<std::string>& stored_slots) {
    const std::string parameter = ParameterOf(tensor);
    if (parameter.empty() || !stored_slots.contains(SlotOf(tensor))) return "is not in it";
    return "is not in it, because " + parameter +
           " was frozen when it was stored (spec.training.optimizer.groups)";
  }

  Error DoesNotFit(const Manifest& manifest, const std::string& tensor, const std::string& problem,
                   bool is_weight) const {
    const std::string right =
        is_weight ? "" : "set spec.checkpoint.restore: Weights to begin at step 0 from its weights, or ";
    return {ErrorCode::kInvalidArgument, "spec.checkpoint.resume: " + checkpointer_.UriOf(manifest.step) +
                                             " does not fit spec.training: " + tensor + " " + problem + "; " +
                                             right + "use Never, or another spec.checkpoint.uri"};
  }

  Result<bool> Finish(const Manifest& manifest) {
    const bool only_weights = checkpointer_.TakesOnlyWeightsOf(manifest);
    LOCKSTEP_TRY(part_->MoveInto(only_weights ? 0 : manifest.step, communicator_));
    state_.evaluations = {};
    if (!only_weights) state_.evaluations = manifest.evaluations;
    int64_t bytes = 0;
    for (const auto& shard : manifest.shards) bytes += shard.bytes;
    log::Info("restored a checkpoint", {{"uri", checkpointer_.UriOf(manifest.step)},
                                        {"step", manifest.step},
                                        {"bytes_read", bytes_read_},
                                        {"of_bytes", bytes}});
    if (only_weights && communicator_.rank() == 0) LogWhatIsNotTaken(manifest);
    if (!only_weights && communicator_.rank() == 0) LogWhetherAverageIsTaken(manifest);
    return true;
  }

  void LogWhetherAverageIsTaken(const Manifest& manifest) const {
    const bool is_stored = HasAverage(manifest);
    const bool is_wanted = HaveAverage(state_.Tensors());
    const std::string uri = checkpointer_.UriOf(manifest.step);
    if (is_wanted && !is_stored) {
      log::Warning("the checkpoint has no average of the weights: the average begins as the weights",
                   {{"uri", uri}});
    }
    if (is_stored && !is_wanted) {
      log::Warning(
          "the average of the weights in the checkpoint is not taken: spec.training.optimizer.weightAverage "
          "is absent",
          {{"uri", uri}});
    }
  }

  void LogWhatIsNotTaken(const Manifest& manifest) const {
    std::set<std::string> left = {"evaluations", "step"};
    for (const auto& shard : manifest.shards) {
      for (const TensorPlace& place : shard.tensors) left.insert(SlotOf(place.name));
    }
    left.erase("");
    log::Warning(
        "spec.checkpoint.restore is Weights: training begins at step 0 with the weights of a checkpoint",
        {{"uri", checkpointer_.UriOf(manifest.step)}, {"not_taken", Join({left.begin(), left.end()}, ", ")}});
  }

  Communicator& communicator_;
  Checkpointer& checkpointer_;
  TrainingState& state_;
  std::unique_ptr<PartToLoad> part_;
  bool is_known_to_all_ = false;  // rank 0: whether all ranks know that the newest attempt failed
  int64_t bytes_read_ = 0;
};

}  // namespace

Result<bool> RestoreTogether(Communicator& communicator, Checkpointer& checkpointer, TrainingState& state,
                             const std::function<Result<void>()>& claim) {
  Restoring restoring(communicator, checkpointer, state);
  return communicator.rank() == 0 ? restoring.Lead(claim) : restoring.Follow();
}

}  // namespace lockstep::train

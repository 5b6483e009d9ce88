#include "runtime/train/stage_sync.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <string>

#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"

namespace lockstep::train {
namespace {

using comm::Communicator;

// Rank 0 may read a large checkpoint first.
constexpr std::chrono::minutes kRestoreLimit{30};

// What a rank says about itself.
struct Standing {
  StageHolder holder;
  EvaluationRecord evaluations;
  double loss_scale = 1;
  int64_t good_steps = 0;
  StepEnd end;  // of the step that made holder.version
};

class Numbers {
 public:
  explicit Numbers(std::vector<int64_t> row = {}) : row_(std::move(row)) {}
  void Put(int64_t number) { row_.push_back(number); }
  void Put(double number) { row_.push_back(std::bit_cast<int64_t>(number)); }
  int64_t Take() { return row_.at(next_++); }
  double TakeReal() { return std::bit_cast<double>(Take()); }
  [[nodiscard]] bool at_end() const { return next_ == row_.size(); }
  [[nodiscard]] const std::vector<int64_t>& row() const { return row_; }

 private:
  std::vector<int64_t> row_;
  std::size_t next_ = 0;
};

std::vector<int64_t> Encode(const TrainingState& state) {
  const StageHolder holder = state.staged->Myself();
  const StepEnd& end = state.staged->last_end();
  Numbers numbers;
  for (const Version& version : {holder.version, holder.pending}) {
    numbers.Put(version.step);
    numbers.Put(version.round);
  }
  numbers.Put(state.evaluations.step);
  numbers.Put(state.evaluations.newest);
  numbers.Put(state.evaluations.best);
  numbers.Put(int64_t{state.evaluations.without_improvement});
  numbers.Put(state.loss_scale.factor());
  numbers.Put(state.loss_scale.good_steps());
  for (const double sum : {end.count, end.loss, end.squares}) numbers.Put(sum);
  for (const bool layer : holder.layers) numbers.Put(int64_t{layer ? 1 : 0});
  return numbers.row();
}

Standing Decode(Numbers numbers) {
  Standing standing;
  for (Version* version : {&standing.holder.version, &standing.holder.pending}) {
    version->step = numbers.Take();
    version->round = numbers.Take();
  }
  standing.evaluations.step = numbers.Take();
  standing.evaluations.newest = numbers.TakeReal();
  standing.evaluations.best = numbers.TakeReal();
  standing.evaluations.without_improvement = numbers.Take();
  standing.loss_scale = numbers.TakeReal();
  standing.good_steps = numbers.Take();
  for (double* sum : {&standing.end.count, &standing.end.loss, &standing.end.squares})
    *sum = numbers.TakeReal();
  while (!numbers.at_end()) standing.holder.layers.push_back(numbers.Take() != 0);
  return standing;
}

Result<std::vector<Standing>> TellEachOther(Communicator& communicator, const TrainingState& state,
                                            std::optional<std::chrono::milliseconds> limit = std::nullopt) {
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(Encode(state), limit));
  std::vector<Standing> all;
  for (const auto& row : rows) all.push_back(Decode(Numbers(row)));
  return all;
}

void LogWhatIsLost(const std::vector<StageHolder>& holders, const std::optional<Version>& whole) {
  Version newest;
  for (const StageHolder& holder : holders) newest = std::max(newest, holder.version);
  if (newest.step <= 0 || newest == whole) return;
  if (whole.has_value()) {
    return log::Info("not all layers of the newest step are left: going on from the step before it",
                     {{"newest_step", newest.step}, {"step", whole->step}});
  }
  std::vector<std::string> layers;
  for (const int layer : LayersMissing(holders, newest)) layers.push_back(std::to_string(layer));
  log::Error(
      "layers lost with the ranks that held them: going back to the newest checkpoint",
      {{"step", newest.step}, {"layers", Join(layers, ", ")}, {"of_layers", holders.front().layers.size()}});
}

// The step that broke ended well elsewhere, and all that it needs is here.
Result<void> HearTheEnd(TrainingState& state, const StepEnd& end) {
  LOCKSTEP_TRY(const StepVerdict verdict, state.staged->EndStep(end, state.loss_scale.factor()));
  log::Info("the step that broke was made after all", {{"step", state.step}, {"applied", verdict.applied}});
  return {};
}

Result<StateSource> GoOnFrom(const Version& version, TrainingState& state, const std::vector<Standing>& all) {
  StagedState& staged = *state.staged;
  const auto first = std::find_if(
      all.begin(), all.end(), [&](const Standing& standing) { return standing.holder.version == version; });
  if (staged.version() != version && staged.Myself().pending == version)
    LOCKSTEP_TRY(HearTheEnd(state, first->end));
  if (staged.awaits_end()) staged.Undo();
  staged.KnowEnd(first->end);
  state.loss_scale.Set(first->loss_scale, first->good_steps);
  if (state.evaluations.step > version.step) state.evaluations = {};  // of steps that will be made again
  for (const Standing& standing : all) {
    if (standing.holder.version == version && standing.evaluations.step > state.evaluations.step)
      state.evaluations = standing.evaluations;
  }
  if (staged.version() == version) return StateSource::kKept;
  staged.Forget();
  return StateSource::kPeer;
}

// Nobody holds state, or not all of it: rank 0 restores or starts afresh, the others learn which.
Result<StateSource> Begin(Communicator& communicator, TrainingState& state, const Restore& restore) {
  StagedState& staged = *state.staged;
  if (communicator.rank() == 0) {
    LOCKSTEP_TRY(const bool restored, restore(state));
    if (!restored) state.step = 0;
  }
  const std::vector<int64_t> mine = {state.step};
  LOCKSTEP_TRY(const auto steps, communicator.AllGather(mine, kRestoreLimit));
  state.step = steps.front().front();
  const bool is_fresh = state.step == 0;
  if (is_fresh) {
    LOCKSTEP_TRY(staged.StartAfresh());
    state.loss_scale = LossScale(staged.spec().precision, staged.spec().global_batch_size);
    state.evaluations = {};
  } else if (communicator.rank() != 0) {
    staged.Forget();
  }
  LOCKSTEP_TRY(const auto all, TellEachOther(communicator, state));
  state.loss_scale.Set(all.front().loss_scale, all.front().good_steps);
  state.evaluations = all.front().evaluations;
  return is_fresh ? StateSource::kFresh : StateSource::kCheckpoint;
}

}  // namespace

Result<StateSource> SyncStages(Communicator& communicator, TrainingState& state, const Restore& restore) {
  StagedState& staged = *state.staged;
  LOCKSTEP_TRY(const std::vector<Standing> all, TellEachOther(communicator, state));
  std::vector<StageHolder> holders;
  for (const Standing& standing : all) holders.push_back(standing.holder);
  const std::optional<Version> whole = NewestHeldWhole(holders);
  LogWhatIsLost(holders, whole);
  StateSource source = StateSource::kKept;
  Version version;
  if (whole.has_value()) {
    version = *whole;
    LOCKSTEP_TRY(source, GoOnFrom(version, state, all));
  } else {
    LOCKSTEP_TRY(source, Begin(communicator, state, restore));
    version = {state.step, -1};
  }
  state.step = version.step;
  LOCKSTEP_TRY(staged.Deal(communicator, version));
  return source;
}

}  // namespace lockstep::train

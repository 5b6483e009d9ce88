#include "runtime/train/saves/saves.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/train/saves/restore.h"
#include "runtime/train/saves/shard_exchange.h"

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;

constexpr auto kAbortPoll = 20ms;
// Between two signs of life of a rank that waits for a save: the supervisor considers a silent rank to hang.
constexpr auto kBetweenSigns = 5s;
// The maximum time between ranks that copy a large state, some of them into newly allocated memory.
constexpr auto kCopyLimit = 10min;
// The maximum time between ranks that have finished a save.
constexpr auto kSaveSyncLimit = 60s;
// The same for a save without a limit. A rank whose own part makes no progress gives it up itself.
constexpr auto kSlowestSave = 24h;

// The outcome of a rank's part of a save; the worst one counts for all ranks.
enum SaveResult : int64_t { kPartStored, kPartWaits, kPartFailed };

SaveResult SaveResultOf(const std::optional<Error>& error) {
  if (!error.has_value()) return kPartStored;
  return error->IsTransient() ? kPartWaits : kPartFailed;
}

}  // namespace

bool Saves::IsDue(int64_t step) const {
  if (!enabled()) return false;
  const api::CheckpointSpec& spec = context_.spec;
  const auto since = context_.clock.Steady() - last_start_;
  if (spec.interval == api::CheckpointInterval::kAuto) return since >= Seconds(interval_.seconds());
  if (spec.interval_steps.has_value() && step % *spec.interval_steps == 0) return true;
  if (!spec.interval_seconds.has_value()) return false;
  return since >= std::chrono::seconds(*spec.interval_seconds);
}

Result<void> Saves::Start(const std::shared_ptr<comm::Communicator>& communicator, TrainingState& state) {
  if (!enabled()) return {};
  LOCKSTEP_TRY(Begin(communicator, state));
  return {};
}

Result<std::optional<Error>> Saves::Begin(const std::shared_ptr<comm::Communicator>& communicator,
                                          TrainingState& state) {
  const SteadyTime start = context_.clock.Steady();
  last_start_ = start;  // also after a failure, so that it is not repeated after each step
  LOCKSTEP_TRY(std::optional<Error> failure, context_.phases.Time(TrainPhase::kCheckpoint, [&] {
    return CopyTogether(communicator, state);
  }));
  if (failure.has_value()) {
    context_.checkpointer->Forget();
    return failure;
  }
  context_.checkpointer->Begin();
  const double stall = Seconds(context_.clock.Steady() - start).count();
  started_[state.step] = {communicator->rank() == 0, stall};
  return std::optional<Error>();
}

// All ranks agree on whether each could copy its part: a rank alone would not notice that another one has no
// memory, and would write for nothing.
Result<std::optional<Error>> Saves::CopyTogether(const std::shared_ptr<comm::Communicator>& communicator,
                                                 TrainingState& state) {
  const comm::Place& place = communicator->place();
  LOCKSTEP_TRY(state.SyncBuffers(*communicator));
  LOCKSTEP_TRY(const PartToSave part, state.Save(*communicator));
  const Result<void> mine = comm::CatchTorch(ErrorCode::kThrottled, "copying the state", [&] {
    context_.checkpointer->Copy({state.step, place.round, place.rank, place.world, part.tensors,
                                 state.evaluations, HistoryOf(place.rank), EpochOf(state.step), part.writers},
                                std::make_shared<RoundExchange>(communicator, context_.clock));
  });
  if (!mine.ok() && mine.error().code != ErrorCode::kThrottled)
    return mine.error();  // an error of the device
  const int64_t failed = mine.ok() ? 0 : 1;
  LOCKSTEP_TRY(const auto rows, communicator->AllGather({&failed, 1}, kCopyLimit));
  const auto first = std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.front() > 0; });
  if (first == rows.end()) return std::optional<Error>();
  Error error{ErrorCode::kThrottled,
              "rank " + std::to_string(first - rows.begin()) + " could not copy its part of the state"};
  if (!mine.ok()) error = mine.error();
  if (!mine.ok() || place.rank == 0) context_.link.Send(protocol::SaveFailed{state.step, error.message});
  return std::optional<Error>(std::move(error));
}

// Only rank 0 writes the history, so the others need not copy theirs.
std::vector<protocol::HistoryRecord> Saves::HistoryOf(int rank) const {
  return rank == 0 ? context_.history : std::vector<protocol::HistoryRecord>();
}

double Saves::EpochOf(int64_t step) const {
  return static_cast<double>(step) / static_cast<double>(context_.steps_per_epoch);
}

void Saves::Report() {
  if (!enabled()) return;
  for (const checkpoint::SaveOutcome& outcome : context_.checkpointer->TakeOutcomes()) {
    const Started started = started_[outcome.step];
    if (outcome.error.has_value()) {
      failed_[outcome.step] = *outcome.error;
      if (outcome.error->code != ErrorCode::kCancelled)  // else a newer save has replaced it
        context_.link.Send(protocol::SaveFailed{outcome.step, outcome.error->message});
      if (outcome.error->IsTransient()) context_.patience.Missed(*outcome.error, "the next checkpoint");
    } else if (started.is_reporter) {
      context_.link.Send(protocol::Saved{.step = outcome.step,
                                         .uri = outcome.uri,
                                         .seconds = outcome.seconds,
                                         .stall_seconds = started.stall_seconds,
                                         .bytes = outcome.bytes});
    }
    if (!outcome.error.has_value()) {
      context_.patience.Answered();
      Learn(started.stall_seconds, outcome.seconds);
    }
    // Older saves were replaced before they were written.
    started_.erase(started_.begin(), started_.upper_bound(outcome.step));
  }
}

void Saves::Learn(double stall_seconds, double store_seconds) {
  if (context_.spec.interval != api::CheckpointInterval::kAuto) return;
  interval_.Saved(stall_seconds, store_seconds);
  if (!interval_.TakeChange()) return;
  log::Info("checkpoint interval adapted to the cost of saves", {{"interval_seconds", interval_.seconds()},
                                                                 {"stall_seconds", stall_seconds},
                                                                 {"store_seconds", store_seconds}});
}

Result<void> Saves::WaitFor(const comm::Communicator* communicator,
                            std::optional<std::chrono::milliseconds> limit) {
  const SteadyTime start = context_.clock.Steady();
  SteadyTime signed_at = start;
  int64_t progress = context_.checkpointer->progress();
  while (true) {
    Result<void> idle = context_.checkpointer->Wait(kAbortPoll);
    if (idle.ok()) return {};
    if (communicator != nullptr && communicator->aborted()) {
      return Error{ErrorCode::kAborted, "the round was aborted while its checkpoint was written"};
    }
    const SteadyTime now = context_.clock.Steady();
    if (limit.has_value() && now - start >= *limit) return idle;
    const int64_t reached = context_.checkpointer->progress();
    if (communicator == nullptr || reached == progress || now - signed_at < kBetweenSigns) continue;
    progress = reached;
    signed_at = now;
    context_.link.Send(protocol::PhaseChanged{protocol::RankPhase::kSave});
  }
}

std::optional<Error> Saves::TakeFailureOf(int64_t step) {
  Report();
  const auto found = failed_.find(step);
  std::optional<Error> error;
  if (found != failed_.end()) error = found->second;
  failed_.clear();
  return error;
}

Result<void> Saves::SaveTogether(const std::shared_ptr<comm::Communicator>& communicator,
                                 TrainingState& state, std::optional<std::chrono::milliseconds> limit,
                                 int attempts) {
  if (!enabled()) return {};
  while (true) {
    LOCKSTEP_TRY(const std::optional<Error> not_begun, Begin(communicator, state));
    if (not_begun.has_value()) return *not_begun;
    std::optional<Error> mine;
    Result<void> waited =
        context_.phases.Time(TrainPhase::kCheckpoint, [&] { return WaitFor(communicator.get(), limit); });
    if (waited.ok()) {
      mine = TakeFailureOf(state.step);
    } else if (waited.error().code == ErrorCode::kAborted) {
      return waited;
    } else {
      mine = waited.error();
    }
    const int64_t own = SaveResultOf(mine);
    // A rank with a small part waits here for the others.
    LOCKSTEP_TRY(const auto rows,
                 communicator->AllGather({&own, 1}, limit.value_or(kSlowestSave) + kSaveSyncLimit));
    const int64_t worst = std::max_element(rows.begin(), rows.end())->front();
    if (worst == kPartStored) return {};
    if (worst == kPartFailed && --attempts > 0) continue;
    if (own == worst) return *mine;
    return Error{worst == kPartWaits ? ErrorCode::kUnavailable : ErrorCode::kAborted,
                 "another rank could not store its part"};
  }
}

void Saves::Drain(std::chrono::milliseconds limit) {
  if (!enabled()) return;
  const Result<void> done = WaitFor(nullptr, limit);
  if (!done.ok()) log::Warning("a checkpoint was left unfinished", {{"error", done.error().message}});
  Report();
}

Result<void> Saves::SaveAlone(TrainingState& state, const LastPlace& last, std::chrono::milliseconds limit) {
  if (!enabled()) return {};
  LOCKSTEP_TRY(const std::vector<NamedTensor> tensors, state.Whole());
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kThrottled, "copying the state", [&] {
    context_.checkpointer->Save(
        {state.step, last.round, 0, 1, tensors, state.evaluations, HistoryOf(last.rank), EpochOf(state.step)},
        nullptr);
  }));
  started_[state.step] = {.is_reporter = true};
  LOCKSTEP_TRY(WaitFor(nullptr, limit));
  const std::optional<Error> failure = TakeFailureOf(state.step);
  if (failure.has_value()) return *failure;
  return {};
}

void Saves::HoldOwnership(int rank) {
  if (!enabled()) return;
  checkpoint::Ownership& ownership = context_.checkpointer->ownership();
  rank == 0 ? ownership.Hold() : ownership.Release();
}

void Saves::EndOwnership() {
  if (enabled()) context_.checkpointer->ownership().End();
}

void Saves::ReleaseOwnership() {
  if (enabled()) context_.checkpointer->ownership().Release();
}

Result<bool> Saves::Restore(comm::Communicator& communicator, TrainingState& state,
                            const checkpoint::Ownership::Pause& pause) {
  if (!enabled()) return false;
  while (true) {
    Result<bool> restored = RestoreTogether(communicator, *context_.checkpointer, state,
                                            [&] { return context_.checkpointer->ownership().Claim(pause); });
    for (const protocol::CheckpointDamaged& damaged : context_.checkpointer->TakeDamaged())
      context_.link.Send(damaged);
    if (restored.ok()) context_.patience.Answered();
    if (restored.ok() || !restored.error().IsTransient()) return restored;
    LOCKSTEP_TRY(context_.patience.Await(restored.error(), "the state to begin from"));
  }
}

}  // namespace lockstep::train

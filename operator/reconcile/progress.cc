#include "operator/reconcile/progress.h"

#include <algorithm>
#include <cmath>

namespace lockstep::reconcile {
namespace {

constexpr std::size_t kKeptRestarts = 10;

api::ProgressStatus ProgressFrom(const rendezvous::RendezvousView& view) {
  api::ProgressStatus progress;
  progress.step = view.progress.step;
  progress.total_steps = view.progress.total_steps;
  progress.epoch = static_cast<int64_t>(view.progress.epoch);
  if (view.progress.step > 0) progress.loss = view.progress.loss;
  if (view.progress.samples_per_second > 0) progress.samples_per_second = view.progress.samples_per_second;
  if (view.last_progress_time > WallTime{}) progress.last_progress_time = view.last_progress_time;
  if (view.evaluation.step > 0) {
    progress.evaluation = {view.evaluation.step, view.evaluation.loss, view.evaluation.accuracy};
  }
  return progress;
}

bool IsDue(const Observed& observed) {
  const auto& written = observed.job.status.progress;
  if (!written || !written->last_progress_time) return true;
  return observed.rendezvous.last_progress_time - *written->last_progress_time >= kProgressPeriod;
}

// Which rung of the ladder brought the job back, as far as the pods tell.
api::Rung RungOf(const rendezvous::RoundChange& change, const Observed& observed) {
  if (change.pods.empty()) return api::Rung::kMembership;
  const auto is_alive = [&](const std::string& name) {
    return std::any_of(observed.pods.begin(), observed.pods.end(), [&](const Pod& pod) {
      return pod.name == name && pod.phase == PodPhase::kRunning && !pod.deleting;
    });
  };
  return std::all_of(change.pods.begin(), change.pods.end(), is_alive) ? api::Rung::kRespawn
                                                                       : api::Rung::kReplacePod;
}

api::RestartRecord RecordFrom(const rendezvous::RoundChange& change, const Observed& observed) {
  api::RestartRecord record;
  record.time = observed.now;
  record.round = change.round;
  record.cause =
      api::EnumFromName<api::FailureCause>(change.cause).value_or(api::FailureCause::kInfrastructure);
  record.rung = RungOf(change, observed);
  for (const Pod& pod : observed.pods) {
    const bool left = std::find(change.pods.begin(), change.pods.end(), pod.name) != change.pods.end();
    if (left && pod.exit_code) record.exit_code = *pod.exit_code;
  }
  return record;
}

// A round that grew is no restart.
bool IsRestart(const rendezvous::RoundChange& change) { return change.cause != "Scale"; }

void ApplyRestarts(const Observed& observed, std::vector<api::RestartRecord>& records) {
  for (const rendezvous::RoundChange& change : observed.rendezvous.changes) {
    if (!IsRestart(change)) continue;
    auto found = std::find_if(records.begin(), records.end(),
                              [&](const auto& record) { return record.round == change.round; });
    if (found == records.end()) found = records.insert(records.begin(), RecordFrom(change, observed));
    if (change.recovery_seconds > 0) found->recovery_seconds = change.recovery_seconds;
    found->lost_steps = change.lost_steps;
  }
  if (records.size() > kKeptRestarts) records.resize(kKeptRestarts);
}

void ApplyCheckpoint(const rendezvous::RendezvousView& view, api::TrainingJobStatus& status) {
  if (view.checkpoint.uri.empty()) return;
  const bool same = status.checkpoint && status.checkpoint->step == view.checkpoint.step &&
                    status.checkpoint->uri == view.checkpoint.uri;
  if (!same) status.checkpoint = {view.checkpoint.step, view.checkpoint_time, view.checkpoint.uri};
}

}  // namespace

bool KnowsTheRound(const Observed& observed) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  return !view.members.empty() || !view.changes.empty() || view.completed;
}

void ApplyRendezvous(const Observed& observed, bool is_final, api::TrainingJobStatus& status) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  if (!KnowsTheRound(observed)) return;
  status.rendezvous = {std::max(view.round, status.rendezvous ? status.rendezvous->round : 0),
                       view.world_size};
  ApplyRestarts(observed, status.restarts);
  if (!is_final && !IsDue(observed)) return;
  ApplyCheckpoint(view, status);
  if (view.progress.step > 0) status.progress = ProgressFrom(view);
}

std::vector<rendezvous::RoundChange> NewChanges(const Observed& observed) {
  std::vector<rendezvous::RoundChange> changes;
  const auto& known = observed.job.status.restarts;
  for (const rendezvous::RoundChange& change : observed.rendezvous.changes) {
    const bool is_known = std::any_of(known.begin(), known.end(),
                                      [&](const auto& record) { return record.round >= change.round; });
    if (IsRestart(change) && !is_known) changes.push_back(change);
  }
  return changes;
}

}  // namespace lockstep::reconcile

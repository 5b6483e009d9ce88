#include "operator/reconcile/goodput.h"

#include <algorithm>

#include "operator/reconcile/progress.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/api/training_job_json.h"

namespace lockstep::reconcile {
namespace {

using api::Activity;

double SumOf(const api::LostSeconds& lost) {
  return lost.scheduling + lost.startup + lost.rendezvous + lost.checkpoint + lost.recompute + lost.stalled;
}

// Of a job without a round: what the members that are missing are waiting for.
Activity ActivityBeforeARound(const Observed& observed) {
  const int32_t needed = observed.job.spec.min_replicas();
  if (observed.rendezvous.waiting >= needed) return Activity::kRendezvous;
  const auto placed = std::count_if(observed.pods.begin(), observed.pods.end(), [](const Pod& pod) {
    return pod.IsActive() && !pod.deleting && !pod.node.empty();
  });
  return placed < needed ? Activity::kScheduling : Activity::kStartup;
}

// Of the checkpoints that this pass tells of for the first time.
double NewStallSeconds(const Observed& observed, const api::TrainingJobStatus& status) {
  const auto& before = observed.job.status.checkpoint;
  if (!status.checkpoint || status.checkpoint == before) return 0;
  double seconds = 0;
  for (const protocol::Saved& save : observed.rendezvous.saves) {
    if (save.step > (before ? before->step : -1)) seconds += save.stall_seconds;
  }
  return seconds;
}

bool HasRecovered(const std::vector<api::RestartRecord>& records, int64_t round) {
  return std::any_of(records.begin(), records.end(), [round](const api::RestartRecord& record) {
    return record.round == round && record.recovery_seconds.has_value();
  });
}

// What was booked as training and was none, known once the next round makes steps: the step in flight was thrown
// away where a round broke; and where no operator watched, nothing said that training stood still.
void TakeBackUnproductive(const Observed& observed, const api::TrainingJobStatus& status,
                          GoodputLedger& ledger) {
  for (const rendezvous::RoundChange& change : observed.rendezvous.changes) {
    const bool is_news = HasRecovered(status.restarts, change.round) &&
                         !HasRecovered(observed.job.status.restarts, change.round);
    if (!is_news) continue;
    const bool hung = change.cause == api::NameOf(api::FailureCause::kHang);
    ledger.TakeBack(change.unfinished_seconds, hung ? ledger.lost().stalled : ledger.lost().recompute);
    ledger.TakeBack(change.unwatched_seconds, ledger.lost().rendezvous);
  }
}

// As the API server keeps it, in rounded numbers: what a pass makes anew of the rendezvous never equals what
// it reads to the last bit, and each write is followed by a pass.
bool IsWrittenAlike(const api::TrainingJobStatus& a, const api::TrainingJobStatus& b) {
  return api::TrainingJobStatusToJson(a) == api::TrainingJobStatusToJson(b);
}

}  // namespace

void GoodputLedger::Book(WallTime now, double checkpoint_stall_seconds) {
  const double booked = status_.productive_seconds + SumOf(status_.lost_seconds);
  const double seconds = std::max(0.0, Seconds(now - status_.since.value_or(now)).count() - booked);
  switch (status_.activity) {
    case Activity::kScheduling: status_.lost_seconds.scheduling += seconds; return;
    case Activity::kStartup: status_.lost_seconds.startup += seconds; return;
    case Activity::kRendezvous: status_.lost_seconds.rendezvous += seconds; return;
    case Activity::kRecompute: status_.lost_seconds.recompute += seconds; return;
    case Activity::kStalled: status_.lost_seconds.stalled += seconds; return;
    case Activity::kTraining: break;
  }
  const double stalled = std::clamp(checkpoint_stall_seconds, 0.0, seconds);
  status_.lost_seconds.checkpoint += stalled;
  status_.productive_seconds += seconds - stalled;
}

void GoodputLedger::TakeBack(double seconds, double& lost) {
  const double taken = std::clamp(seconds, 0.0, status_.productive_seconds);
  status_.productive_seconds -= taken;
  lost += taken;
}

api::GoodputStatus GoodputLedger::status() const {
  api::GoodputStatus status = status_;
  const double all = status.productive_seconds + SumOf(status.lost_seconds);
  status.ratio = all > 0 ? status.productive_seconds / all : 0;
  return status;
}

Activity ActivityOf(const Observed& observed, Mode mode, const api::TrainingJobStatus& status) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  if (mode == Mode::kSuspend) return Activity::kScheduling;
  // What is held goes on training.
  const bool is_stalled = mode != Mode::kHold && api::IsTrue(status.conditions, api::condition::kStalled);
  if (is_stalled) return Activity::kStalled;
  if (view.world_size > 0) {
    if (view.progress.round != view.round) return Activity::kRendezvous;
    return view.progress.step < view.best_step ? Activity::kRecompute : Activity::kTraining;
  }
  // The workers leave at their end; or this operator was just started and they have not told it of their
  // round.
  if (view.completed || !KnowsTheRound(observed)) {
    const auto& before = observed.job.status.goodput;
    if (before && before->activity == Activity::kTraining) return Activity::kTraining;
  }
  return ActivityBeforeARound(observed);
}

void ApplyGoodput(const Observed& observed, const Decision& decision, api::TrainingJobStatus& status) {
  if (!status.goodput) {
    if (decision.mode != Mode::kRun) return;
    // Whole seconds, as the API server keeps them: the sum counts from here.
    status.goodput = api::GoodputStatus{.since = std::chrono::floor<std::chrono::seconds>(observed.now)};
  }
  const bool is_over = decision.mode == Mode::kFinished;
  const Activity activity = is_over ? status.goodput->activity : ActivityOf(observed, decision.mode, status);
  if (activity == status.goodput->activity && IsWrittenAlike(status, observed.job.status)) return;
  if (is_over && decision.finish_as.empty()) return;
  GoodputLedger ledger(*status.goodput);
  ledger.Book(observed.now, NewStallSeconds(observed, status));
  TakeBackUnproductive(observed, status, ledger);
  ledger.Begin(activity);
  status.goodput = ledger.status();
}

}  // namespace lockstep::reconcile

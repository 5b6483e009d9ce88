#include "operator/reconcile/goodput.h"

#include <algorithm>
#include <map>

#include "operator/reconcile/progress.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/api/training_job_json.h"

namespace lockstep::reconcile {
namespace {

using api::Activity;

constexpr double kSameSeconds = 1e-3;  // the status is rounded to six digits

double SumOf(const api::LostSeconds& lost) {
  return lost.scheduling + lost.startup + lost.rendezvous + lost.checkpoint + lost.recompute + lost.stalled;
}

// For a job without a round: what the missing members wait for.
Activity ActivityBeforeARound(const Observed& observed) {
  const int32_t needed = observed.job.spec.min_replicas();
  if (observed.rendezvous.waiting >= needed) return Activity::kRendezvous;
  const auto placed = std::count_if(observed.pods.begin(), observed.pods.end(), [](const Pod& pod) {
    return pod.IsActive() && !pod.deleting && !pod.node.empty();
  });
  return placed < needed ? Activity::kScheduling : Activity::kStartup;
}

// The stall of checkpoints that are new in this pass.
double NewStallSeconds(const Observed& observed, const api::TrainingJobStatus& status) {
  const auto& before = observed.job.status.checkpoint;
  if (!status.checkpoint || status.checkpoint == before) return 0;
  double seconds = 0;
  for (const protocol::Saved& save : observed.rendezvous.saves) {
    if (save.step > (before ? before->step : -1)) seconds += save.stall_seconds;
  }
  return seconds;
}

const api::RestartRecord* RecordOf(const rendezvous::RoundChange& change,
                                   const std::vector<api::RestartRecord>& records) {
  const auto found = std::find_if(records.begin(), records.end(),
                                  [&](const auto& record) { return record.round == change.round; });
  return found == records.end() ? nullptr : &*found;
}

// Breaks between two steps: the training stood still from the first of them to the next step.
struct Standstill {
  double seconds = 0;
  double booked = 0;    // of them
  bool is_new = false;  // its end or a correction
};

// Seconds without training whose end or correction is new in this pass, minus the seconds that were already
// counted while they lasted. The rendezvous measures from the break of a round to the next step; the members
// report breaks that no operator observed. No value: nothing is new.
std::optional<double> NewStandstillSeconds(const Observed& observed, const api::TrainingJobStatus& status,
                                           const GoodputLedger& ledger) {
  const WallTime booked_until = ledger.booked_until(observed.now);
  const bool was_training = status.goodput->activity == Activity::kTraining;
  std::map<int64_t, Standstill> standstills;  // by the formation that made the next step
  for (const rendezvous::RoundChange& change : observed.rendezvous.changes) {
    if (RecordOf(change, status.restarts) == nullptr) continue;  // a change of size, not a failure
    const api::RestartRecord* before = RecordOf(change, observed.job.status.restarts);
    const double known = before == nullptr ? 0 : before->recovery_seconds.value_or(0);
    const auto ended = change.ended || before == nullptr ? change.ended : before->time;
    const bool is_part_booked = known == 0 && !was_training && ended && *ended < booked_until;
    const double booked = is_part_booked ? Seconds(booked_until - *ended).count() : known;
    Standstill& standstill = standstills[change.recovered_in];
    standstill.seconds = std::max(standstill.seconds, change.recovery_seconds);
    standstill.booked = std::max(standstill.booked, booked);
    standstill.is_new = standstill.is_new || change.recovery_seconds > known + kSameSeconds;
  }
  std::optional<double> seconds;
  for (const auto& [formation, standstill] : standstills) {
    if (standstill.is_new)
      seconds = seconds.value_or(0) + std::max(0.0, standstill.seconds - standstill.booked);
  }
  return seconds;
}

// Seconds since a round broke after the last accounting, if no rank has trained since.
double SecondsSinceTheBreak(const Observed& observed, Activity now, WallTime booked_until) {
  const auto& changes = observed.rendezvous.changes;
  const bool is_standing = now != Activity::kTraining && now != Activity::kRecompute && !changes.empty() &&
                           changes.back().recovery_seconds == 0 && changes.back().ended.has_value();
  if (!is_standing) return 0;
  return std::max(0.0, Seconds(observed.now - std::max(*changes.back().ended, booked_until)).count());
}

GoodputLedger::Passed PassedSince(const Observed& observed, Activity now,
                                  const api::TrainingJobStatus& status, const GoodputLedger& ledger) {
  GoodputLedger::Passed passed{.standstill_seconds = NewStandstillSeconds(observed, status, ledger),
                               .checkpoint_stall_seconds = NewStallSeconds(observed, status)};
  const bool was_training = status.goodput->activity == Activity::kTraining;
  if (was_training || passed.standstill_seconds) {
    passed.standstill_seconds = passed.standstill_seconds.value_or(0) +
                                SecondsSinceTheBreak(observed, now, ledger.booked_until(observed.now));
  }
  return passed;
}

// The step in flight is lost when a round breaks. It is subtracted when the next round completes steps.
void CountUnfinishedAsLost(const Observed& observed, const api::TrainingJobStatus& status,
                           GoodputLedger& ledger) {
  for (const rendezvous::RoundChange& change : observed.rendezvous.changes) {
    const api::RestartRecord* before = RecordOf(change, observed.job.status.restarts);
    const api::RestartRecord* after = RecordOf(change, status.restarts);
    const bool is_new = after != nullptr && after->recovery_seconds.has_value() &&
                        (before == nullptr || !before->recovery_seconds.has_value());
    if (!is_new) continue;
    const bool hung = change.cause == api::FailureCause::kHang;
    ledger.CountAsLost(change.unfinished_seconds, hung ? ledger.lost().stalled : ledger.lost().recompute);
  }
}

// A program of the user's counts as training from the start of its round, because one that no witness observes never reports a
// step. The first step of one that is observed shows that it has only started until then.
void CountStartAsLost(const Observed& observed, const api::TrainingJobStatus& status, GoodputLedger& ledger) {
  const auto& before = observed.job.status.progress;
  const bool is_first = status.progress && status.progress->step > 0 && (!before || before->step == 0);
  if (observed.job.spec.training || !is_first) return;
  double since_first_step = 0;
  for (const auto& [phase, seconds] : observed.rendezvous.progress.phase_seconds) since_first_step += seconds;
  ledger.CountAsLost(std::max(0.0, ledger.status().productive_seconds - since_first_step),
                     ledger.lost().startup);
}

// Compares as the API server stores them, with rounded numbers. The exact value that a pass computes never
// equals the stored one, and each write causes another pass.
bool IsWrittenAlike(const api::TrainingJobStatus& a, const api::TrainingJobStatus& b) {
  return api::TrainingJobStatusToJson(a) == api::TrainingJobStatusToJson(b);
}

}  // namespace

WallTime GoodputLedger::booked_until(WallTime now) const {
  return status_.since.value_or(now) +
         std::chrono::duration_cast<WallTime::duration>(Seconds(booked_seconds()));
}

double GoodputLedger::booked_seconds() const {
  return status_.productive_seconds + SumOf(status_.lost_seconds);
}

double* GoodputLedger::LostOfActivity() {
  api::LostSeconds& lost = status_.lost_seconds;
  switch (status_.activity) {
    case Activity::kScheduling: return &lost.scheduling;
    case Activity::kStartup: return &lost.startup;
    case Activity::kRendezvous: return &lost.rendezvous;
    case Activity::kRecompute: return &lost.recompute;
    case Activity::kStalled: return &lost.stalled;
    case Activity::kTraining: break;
  }
  return nullptr;
}

void GoodputLedger::Book(WallTime now, const Passed& passed) {
  const double seconds = std::max(0.0, Seconds(now - booked_until(now)).count());
  double* lost = LostOfActivity();
  const double standstill = passed.standstill_seconds.value_or(lost == nullptr ? 0 : seconds);
  const double stood = std::min(standstill, seconds);
  (lost == nullptr ? status_.lost_seconds.rendezvous : *lost) += stood;
  const double stalled =
      lost == nullptr ? std::clamp(passed.checkpoint_stall_seconds, 0.0, seconds - stood) : 0;
  status_.lost_seconds.checkpoint += stalled;
  status_.productive_seconds += seconds - stood - stalled;
  CountAsLost(standstill - stood, status_.lost_seconds.rendezvous);
}

void GoodputLedger::TakeBackAfter(WallTime end) {
  double* lost = LostOfActivity();
  double& counter = lost == nullptr ? status_.productive_seconds : *lost;
  const double excess = Seconds(booked_until(end) - end).count();
  counter -= std::clamp(excess, 0.0, counter);
}

void GoodputLedger::CountAsLost(double seconds, double& lost) {
  const double taken = std::clamp(seconds, 0.0, status_.productive_seconds);
  status_.productive_seconds -= taken;
  lost += taken;
}

api::GoodputStatus GoodputLedger::status() const {
  api::GoodputStatus status = status_;
  const double all = booked_seconds();
  status.ratio = all > 0 ? status.productive_seconds / all : 0;
  return status;
}

Activity ActivityOf(const Observed& observed, Mode mode, const api::TrainingJobStatus& status) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  if (mode == Mode::kSuspend) return Activity::kScheduling;
  // A held job continues to train.
  const bool is_stalled = mode != Mode::kHold && api::IsTrue(status.conditions, api::condition::kStalled);
  if (is_stalled) return Activity::kStalled;
  if (view.world_size > 0) {
    if (view.progress.round != view.round) return Activity::kRendezvous;
    return view.progress.step < view.best_step ? Activity::kRecompute : Activity::kTraining;
  }
  // The workers leave at the end of the training, or this operator was just started and has not received
  // their round yet.
  if (view.completed || !IsRoundKnown(observed)) {
    const auto& before = observed.job.status.goodput;
    if (before && before->activity == Activity::kTraining) return Activity::kTraining;
  }
  return ActivityBeforeARound(observed);
}

void ApplyGoodput(const Observed& observed, const Decision& decision, api::TrainingJobStatus& status) {
  if (!status.goodput) {
    if (decision.mode != Mode::kRun) return;
    // Whole seconds, as the API server stores them: the sum counts from here.
    status.goodput = api::GoodputStatus{.since = std::chrono::floor<std::chrono::seconds>(observed.now)};
  }
  const bool is_over = decision.mode == Mode::kFinished;
  const Activity activity = is_over ? status.goodput->activity : ActivityOf(observed, decision.mode, status);
  if (activity == status.goodput->activity && IsWrittenAlike(status, observed.job.status)) return;
  if (is_over && decision.finish_as.empty()) return;
  GoodputLedger ledger(*status.goodput);
  const WallTime until = decision.ended.value_or(observed.now);
  if (decision.ended) ledger.TakeBackAfter(*decision.ended);
  ledger.Book(until, PassedSince(observed, activity, status, ledger));
  CountUnfinishedAsLost(observed, status, ledger);
  CountStartAsLost(observed, status, ledger);
  // The time after the last step is for an evaluation and the last checkpoint, and ends with this pass.
  const WallTime last_step = observed.rendezvous.step_time;
  const bool is_complete = decision.finish_as == api::condition::kComplete;
  if (is_complete && last_step > WallTime{} && status.goodput->activity == Activity::kTraining)
    ledger.CountAsLost(Seconds(until - last_step).count(), ledger.lost().checkpoint);
  ledger.Begin(activity);
  status.goodput = ledger.status();
}

}  // namespace lockstep::reconcile

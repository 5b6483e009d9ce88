#include "operator/reconcile/progress.h"

#include <algorithm>
#include <cmath>

#include "operator/reconcile/failure_rules.h"
#include "runtime/common/api/scaling_advice.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/damaged_checkpoints.h"

namespace lockstep::reconcile {
namespace {

constexpr std::size_t kKeptRestarts = 10;
constexpr std::size_t kKeptRanks = 64;
constexpr std::size_t kKeptSizes = 16;

// A shorter measurement varies too much to replace another.
constexpr double kMeasuredSeconds = 10;

// An event has at most 1024 bytes, and the status keeps ten reasons.
constexpr std::size_t kMaxReason = 400;
constexpr std::size_t kMaxLines = 500;

// The end of an error message is more informative than its beginning. Whole lines, unless the last one alone is too
// long: then the end of that, behind "…".
std::string LastPart(const std::string& text, std::size_t size) {
  static constexpr std::string_view kMark = "…";
  if (text.size() <= size) return text;
  const std::size_t line_end = text.find('\n', text.size() - size);
  if (line_end < text.size() - 1) return text.substr(line_end + 1);
  std::size_t cut = text.size() - size + kMark.size();
  // Bytes 10xxxxxx continue a character: cut at the start of the next one.
  while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) ++cut;
  return std::string(kMark) + text.substr(cut);
}

api::ProgressStatus ProgressFrom(const rendezvous::RendezvousView& view) {
  api::ProgressStatus progress;
  progress.step = view.progress.step;
  progress.total_steps = view.progress.total_steps;
  progress.epoch = static_cast<int64_t>(view.progress.epoch);
  if (view.progress.step > 0 && view.progress.HasLoss()) progress.loss = view.progress.loss;
  if (view.progress.samples_per_second > 0) progress.samples_per_second = view.progress.samples_per_second;
  if (view.last_progress_time > WallTime{}) progress.last_progress_time = view.last_progress_time;
  if (view.evaluation.step > 0) progress.evaluation = view.evaluation;
  return progress;
}

bool IsDue(const Observed& observed) {
  const auto& written = observed.job.status.progress;
  if (!written || !written->last_progress_time) return true;
  return observed.rendezvous.last_progress_time - *written->last_progress_time >= kProgressPeriod;
}

// The pod may be gone already; then only the rendezvous may know its node.
std::string NodeOf(const rendezvous::Departure& departure, const Observed& observed) {
  if (!departure.node.empty()) return departure.node;
  const auto pod = std::find_if(observed.pods.begin(), observed.pods.end(),
                                [&](const Pod& entry) { return entry.uid == departure.pod_uid; });
  return pod == observed.pods.end() ? "" : pod->node;
}

void TakeDepartures(const rendezvous::RoundChange& change, const Observed& observed,
                    api::RestartRecord& record) {
  if (change.departures.empty()) return;
  record.ranks.clear();
  for (const rendezvous::Departure& departure : change.departures) {
    record.ranks.insert(record.ranks.end(), departure.ranks.begin(), departure.ranks.end());
  }
  std::sort(record.ranks.begin(), record.ranks.end());
  if (record.ranks.size() > kKeptRanks) record.ranks.resize(kKeptRanks);
  const rendezvous::Departure& first = change.departures.front();
  if (record.node.empty()) record.node = NodeOf(first, observed);
  record.exit_code = first.exit_code;
  const api::FailureRule* rule = FindRule(observed.job.spec.failure_policy, FailureOf(first));
  if (rule != nullptr) record.rule = rule->name;
  record.detection_seconds = first.detection_seconds;
}

// A round that grew or shrank on request is no restart. After a break it takes a moment until the cause is
// known, because a collective often fails before the death is observed.
bool IsRestart(const rendezvous::RoundChange& change, const rendezvous::RendezvousView& view) {
  return change.cause.has_value() && (!change.departures.empty() || view.round > change.round);
}

void ApplyRestarts(const Observed& observed, std::vector<api::RestartRecord>& records) {
  for (const rendezvous::RoundChange& change : observed.rendezvous.changes) {
    if (!IsRestart(change, observed.rendezvous)) continue;
    auto found = std::find_if(records.begin(), records.end(),
                              [&](const auto& record) { return record.round == change.round; });
    if (found == records.end()) {
      found = records.insert(records.begin(), api::RestartRecord{.time = change.ended.value_or(observed.now),
                                                                 .round = change.round});
    }
    found->cause = *change.cause;
    found->level = change.level;
    TakeDepartures(change, observed, *found);
    if (change.recovery_seconds > 0) found->recovery_seconds = change.recovery_seconds;
    found->lost_steps = change.lost_steps;
    found->message = DescriptionOf(change);
  }
  if (records.size() > kKeptRestarts) records.resize(kKeptRestarts);
}

void ApplyCheckpoint(const rendezvous::RendezvousView& view, api::TrainingJobStatus& status) {
  const protocol::Saved& newest = view.checkpoint;
  if (newest.uri.empty()) return;
  const auto step = newest.step >= 0 ? std::optional(newest.step) : std::nullopt;
  // A program may write to the same file again. Times in the API have whole seconds.
  const bool is_found = newest.completed_at > 0;
  const WallTime time = is_found ? WallTime(std::chrono::floor<std::chrono::seconds>(view.checkpoint_time))
                                 : view.checkpoint_time;
  const bool same = status.checkpoint && status.checkpoint->step == step &&
                    status.checkpoint->uri == newest.uri && (!is_found || status.checkpoint->time == time);
  if (!same) status.checkpoint = {step, time, newest.uri};
}

void ApplyDamages(const Observed& observed, std::vector<api::DamagedCheckpoint>& damages) {
  for (const protocol::CheckpointDamaged& damaged : observed.rendezvous.damaged_checkpoints)
    protocol::KeepNewest(damages, api::DamagedCheckpoint{observed.now, damaged.step, damaged.reason});
}

// Only a program that joins says how many samples it takes.
void ApplyScaling(const Observed& observed, std::vector<api::ScalingRecord>& records) {
  const rendezvous::MeasuredSteps& measured = observed.rendezvous.measured_steps;
  if (measured.samples <= 0 || measured.steps < api::kFewestMeasuredSteps ||
      measured.seconds < kMeasuredSeconds) {
    return;
  }
  api::ScalingRecord record = api::RecordOf(measured, observed.rendezvous.world_size);
  record.time = observed.rendezvous.last_progress_time;
  std::erase_if(records, [&](const auto& entry) { return entry.world_size == record.world_size; });
  if (records.size() >= kKeptSizes) {
    records.erase(std::min_element(records.begin(), records.end(),
                                   [](const auto& a, const auto& b) { return a.time < b.time; }));
  }
  const auto larger = std::find_if(records.begin(), records.end(),
                                   [&](const auto& entry) { return entry.world_size > record.world_size; });
  records.insert(larger, record);
}

}  // namespace

bool IsRoundKnown(const Observed& observed) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  return !view.members.empty() || !view.changes.empty() || view.completed;
}

void ApplyRendezvous(const Observed& observed, bool is_final, api::TrainingJobStatus& status) {
  const rendezvous::RendezvousView& view = observed.rendezvous;
  if (!IsRoundKnown(observed)) return;
  status.rendezvous = {std::max(view.round, status.rendezvous ? status.rendezvous->round : 0),
                       view.world_size};
  ApplyRestarts(observed, status.restarts);
  ApplyDamages(observed, status.damaged_checkpoints);
  if (!is_final && !IsDue(observed)) return;
  ApplyCheckpoint(view, status);
  if (view.progress.step > 0) status.progress = ProgressFrom(view);
  ApplyScaling(observed, status.scaling);
}

std::string DescriptionOf(const rendezvous::RoundChange& change) {
  std::string message = "round " + std::to_string(change.round) + ": " + change.reason;
  for (const rendezvous::Departure& departure : change.departures) {
    if (departure.last_lines.empty()) continue;
    return Truncate(message, kMaxReason) + "; last lines of " + departure.pod + ":\n" +
           LastPart(departure.last_lines, kMaxLines);
  }
  return Truncate(message, kMaxReason + kMaxLines);
}

std::vector<rendezvous::RoundChange> NewChanges(const Observed& observed) {
  std::vector<rendezvous::RoundChange> changes;
  const auto& known = observed.job.status.restarts;
  for (const rendezvous::RoundChange& change : observed.rendezvous.changes) {
    const bool is_known = std::any_of(known.begin(), known.end(),
                                      [&](const auto& record) { return record.round >= change.round; });
    if (IsRestart(change, observed.rendezvous) && !is_known) changes.push_back(change);
  }
  return changes;
}

}  // namespace lockstep::reconcile

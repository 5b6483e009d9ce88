#include "runtime/tools/kubectl_plugin/job_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"

namespace lockstep::kubectl_plugin {
namespace {

namespace condition = api::condition;
using api::ConditionStatus;

constexpr std::size_t kShownRestarts = 5;
constexpr std::size_t kStoryWidth = 100;

std::string StateWord(const api::TrainingJob& job) {
  return job.status.state.empty() ? "Created" : job.status.state;
}

bool IsRunning(const api::TrainingJob& job) { return job.status.state == "Running"; }

// The condition that explains the job's state; nullptr if the state needs no explanation.
const api::Condition* ConditionOf(const api::TrainingJob& job) {
  const auto& all = job.status.conditions;
  const auto with = [&](std::string_view type, ConditionStatus status) {
    const api::Condition* found = api::FindCondition(all, type);
    return found != nullptr && found->status == status ? found : nullptr;
  };
  const std::string& state = job.status.state;
  for (const std::string_view type : {condition::kComplete, condition::kFailed, condition::kSuspended,
                                      condition::kStalled, condition::kRestarting}) {
    if (state == type) return with(type, ConditionStatus::kTrue);
  }
  if (state != "Starting" && state != "Pending") return nullptr;
  const api::Condition* waits = with(condition::kProgressing, ConditionStatus::kFalse);
  return waits != nullptr ? waits : with(condition::kScheduled, ConditionStatus::kFalse);
}

std::string ReasonText(const api::Condition& entry) {
  return entry.message.empty() ? entry.reason : entry.reason + ": " + command_line::OneLine(entry.message);
}

std::string StateLine(const api::TrainingJob& job) {
  const api::Condition* why = ConditionOf(job);
  if (why != nullptr) return StateWord(job) + " (" + ReasonText(*why) + ")";
  if (job.status.observed_generation > 0) return StateWord(job);
  const std::string& manager = job.spec.managed_by;
  return StateWord(job) + (manager.empty()
                               ? " (the operator has not reconciled it yet: is it running?)"
                               : " (no operator with managedBy " + manager +
                                     " has reconciled it yet: is one running that watches this namespace?)");
}

// Conditions that a user may have to act on, in addition to the explanation of the state.
command_line::Lines Concerns(const api::TrainingJob& job) {
  static constexpr std::array kConcerns = {std::pair(condition::kStalled, ConditionStatus::kTrue),
                                           std::pair(condition::kDegraded, ConditionStatus::kTrue),
                                           std::pair(condition::kQuotaReserved, ConditionStatus::kFalse),
                                           std::pair(condition::kScheduled, ConditionStatus::kFalse),
                                           std::pair(condition::kUpdated, ConditionStatus::kFalse)};
  if (api::IsFinished(job.status.conditions)) return {};
  const api::Condition* why = ConditionOf(job);
  command_line::Lines lines;
  for (const auto& [type, status] : kConcerns) {
    const api::Condition* found = api::FindCondition(job.status.conditions, type);
    if (found == nullptr || found->status != status || found == why) continue;
    // Skips repetitions, such as "not Scheduled (SuspendRequested)" for a suspended job.
    if (why != nullptr && found->reason == why->reason && found->message.empty()) continue;
    const std::string name = (status == ConditionStatus::kFalse ? "not " : "") + found->type;
    lines.push_back(name + " (" + ReasonText(*found) + ")");
  }
  if (job.status.observed_generation > 0 && job.metadata.generation > job.status.observed_generation)
    lines.emplace_back("the operator has not observed the newest change of the spec yet");
  return lines;
}

std::string PodsLine(const api::TrainingJob& job) {
  const api::TrainingJobSpec& spec = job.spec;
  std::string text =
      std::to_string(job.status.ready_replicas) + " of " + std::to_string(spec.worker.replicas) + " ready";
  if (spec.elastic_policy) {
    text += ", elastic from " + std::to_string(spec.min_replicas()) + " to " +
            std::to_string(spec.max_replicas());
  }
  if (spec.standby_replicas > 0) {
    text += ", " + std::to_string(job.status.standby_replicas) + " of " +
            std::to_string(spec.standby_replicas) + " standing by";
  }
  return text;
}

std::string RoundLine(const api::RendezvousStatus& round) {
  const std::string number = std::to_string(round.round);
  return round.world_size > 0 ? number + ", " + command_line::CountText(round.world_size, "rank")
                              : number + ", over";
}

std::string TimeLeft(const api::TrainingJob& job) {
  const api::ProgressStatus& progress = *job.status.progress;
  const int64_t steps = progress.total_steps - progress.step;
  if (!IsRunning(job) || !job.spec.training || steps <= 0 || progress.samples_per_second.value_or(0) <= 0)
    return "";
  const auto samples = static_cast<double>(steps) * static_cast<double>(job.spec.training->global_batch_size);
  return "about " + command_line::DurationText(std::round(samples / *progress.samples_per_second)) + " left";
}

std::string ProgressLine(const api::TrainingJob& job) {
  const api::ProgressStatus& progress = *job.status.progress;
  std::string text = "step " + std::to_string(progress.step);
  if (progress.total_steps > 0) {
    text += " of " + std::to_string(progress.total_steps) + " (" +
            std::to_string(100 * progress.step / progress.total_steps) + " %)";
  }
  command_line::Lines parts = {text, "epoch " + std::to_string(progress.epoch)};
  if (progress.loss) parts.push_back("loss " + FormatNumber(*progress.loss));
  for (const std::string& part : {SpeedText(job), TimeLeft(job)}) {
    if (!part.empty()) parts.push_back(part);
  }
  return Join(parts, ", ");
}

std::string EvaluationLine(const api::EvaluationStatus& evaluation) {
  command_line::Lines parts;
  if (evaluation.accuracy) parts.push_back("accuracy " + FormatNumber(*evaluation.accuracy));
  if (evaluation.loss) parts.push_back("loss " + FormatNumber(*evaluation.loss));
  const std::string epoch = evaluation.epoch > 0 ? ", epoch " + FormatNumber(evaluation.epoch) : "";
  return Join(parts, ", ") + " after step " + std::to_string(evaluation.step) + epoch;
}

std::string CheckpointLine(const api::CheckpointStatus& checkpoint, WallTime now) {
  command_line::Lines parts;
  if (checkpoint.step) parts.push_back("step " + std::to_string(*checkpoint.step));
  if (checkpoint.time) parts.push_back(command_line::AgeText(*checkpoint.time, now) + " ago");
  parts.push_back(command_line::OneLine(checkpoint.uri));
  return Join(parts, ", ");
}

std::string GoodputLine(const api::GoodputStatus& goodput) {
  const api::LostSeconds& lost = goodput.lost_seconds;
  const std::array<std::pair<const char*, double>, 6> reasons = {{{"scheduling", lost.scheduling},
                                                                  {"startup", lost.startup},
                                                                  {"rendezvous", lost.rendezvous},
                                                                  {"checkpoint", lost.checkpoint},
                                                                  {"recompute", lost.recompute},
                                                                  {"stalled", lost.stalled}}};
  constexpr double kWorthNaming = 0.05;
  command_line::Lines parts;
  for (const auto& [name, seconds] : reasons) {
    if (seconds >= kWorthNaming)
      parts.push_back(std::string(name) + " " + command_line::DurationText(seconds));
  }
  const std::string share = FormatNumber(std::round(goodput.ratio * 1000) / 10, 3) + " %, " +
                            command_line::DurationText(goodput.productive_seconds) +
                            " on steps whose result was kept";
  return parts.empty() ? share : share + "; lost to " + Join(parts, ", ");
}

std::string RestartsLine(const api::TrainingJob& job) {
  return std::to_string(job.status.attempt) + " charged, " +
         std::to_string(job.spec.failure_policy.max_restarts) + " allowed";
}

command_line::Lines RestartTable(const std::vector<api::RestartRecord>& restarts, WallTime now) {
  std::vector<std::vector<std::string>> rows = {
      {"AGO", "ROUND", "CAUSE", "RANKS", "MENDED BY", "RECOVERY", "LOST STEPS", "WHAT"}};
  for (std::size_t i = 0; i < std::min(kShownRestarts, restarts.size()); ++i) {
    const api::RestartRecord& entry = restarts[i];
    rows.push_back(
        {entry.time ? command_line::AgeText(*entry.time, now) : "", std::to_string(entry.round),
         std::string(api::NameOf(entry.cause)), RanksText({entry.ranks.begin(), entry.ranks.end()}),
         std::string(api::NameOf(entry.level)),
         entry.recovery_seconds ? command_line::DurationText(*entry.recovery_seconds) : "",
         std::to_string(entry.lost_steps), Truncate(command_line::OneLine(entry.message), kStoryWidth)});
  }
  return command_line::Columns(rows);
}

command_line::Lines PodTable(std::vector<PodRow> pods, const RankPlaces& places) {
  SortByRank(pods, places);
  std::vector<std::vector<std::string>> rows = {{"RANK", "POD", "STATE", "READY", "NODE"}};
  for (const PodRow& pod : pods) {
    rows.push_back(
        {RanksText(places.RanksOf(pod.name)), pod.name, pod.state, pod.is_ready ? "yes" : "no", pod.node});
  }
  return command_line::Columns(rows);
}

// In order of interest.
std::vector<std::vector<std::string>> Facts(const api::TrainingJob& job, WallTime now) {
  const api::TrainingJobStatus& status = job.status;
  std::vector<std::vector<std::string>> facts = {{"State", StateLine(job)}};
  for (std::string& concern : Concerns(job)) facts.push_back({"!", std::move(concern)});
  facts.push_back({"Pods", PodsLine(job)});
  if (status.rendezvous) facts.push_back({"Round", RoundLine(*status.rendezvous)});
  if (status.progress) {
    facts.push_back({"Progress", ProgressLine(job)});
    if (status.progress->evaluation)
      facts.push_back({"Tested", EvaluationLine(*status.progress->evaluation)});
  }
  if (status.checkpoint) facts.push_back({"Checkpoint", CheckpointLine(*status.checkpoint, now)});
  if (status.goodput && status.goodput->since) facts.push_back({"Goodput", GoodputLine(*status.goodput)});
  if (status.attempt > 0 || !status.restarts.empty()) facts.push_back({"Restarts", RestartsLine(job)});
  return facts;
}

void AddPart(command_line::Lines& lines, const command_line::Lines& part) {
  lines.emplace_back();
  lines.insert(lines.end(), part.begin(), part.end());
}

}  // namespace

std::string SpeedText(const api::TrainingJob& job) {
  if (!IsRunning(job) || !job.status.progress) return "";
  const double rate = job.status.progress->samples_per_second.value_or(0);
  if (rate <= 0) return "";
  std::string speed = FormatNumber(rate) + " samples/s";
  if (!job.spec.training) return speed;
  const double step_ms = 1000 * static_cast<double>(job.spec.training->global_batch_size) / rate;
  return speed + ", " +
         (step_ms < 1000 ? FormatNumber(step_ms, 3) + " ms" : command_line::DurationText(step_ms / 1000)) +
         " a step";
}

command_line::Lines JobText(const api::TrainingJob& job, std::vector<PodRow> pods, const RankPlaces& places,
                            WallTime now) {
  std::string head = job.metadata.name + " in " + job.metadata.namespace_name;
  if (job.metadata.creation_timestamp)
    head += ", " + command_line::AgeText(*job.metadata.creation_timestamp, now) + " old";
  command_line::Lines lines = {head};
  for (std::string& fact : command_line::Columns(Facts(job, now))) lines.push_back(std::move(fact));
  if (!job.status.restarts.empty()) AddPart(lines, RestartTable(job.status.restarts, now));
  if (!pods.empty()) AddPart(lines, PodTable(std::move(pods), places));
  return lines;
}

command_line::Lines JobTable(const std::vector<api::TrainingJob>& jobs, bool with_namespace, WallTime now) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "STATE", "READY", "WORLD", "STEP", "LOSS", "GOODPUT", "RESTARTS", "AGE"}};
  for (const api::TrainingJob& job : jobs) {
    const api::TrainingJobStatus& status = job.status;
    const auto& progress = status.progress;
    rows.push_back(
        {job.metadata.name, StateWord(job),
         std::to_string(status.ready_replicas) + "/" + std::to_string(job.spec.worker.replicas),
         status.rendezvous ? std::to_string(status.rendezvous->world_size) : "",
         progress ? std::to_string(progress->step) + "/" + std::to_string(progress->total_steps) : "",
         progress && progress->loss ? FormatNumber(*progress->loss) : "",
         status.goodput && status.goodput->since
             ? std::to_string(std::lround(100 * status.goodput->ratio)) + " %"
             : "",
         std::to_string(status.attempt),
         job.metadata.creation_timestamp ? command_line::AgeText(*job.metadata.creation_timestamp, now)
                                         : ""});
  }
  if (with_namespace) {
    rows[0].insert(rows[0].begin(), "NAMESPACE");
    for (std::size_t i = 0; i < jobs.size(); ++i)
      rows[i + 1].insert(rows[i + 1].begin(), jobs[i].metadata.namespace_name);
  }
  return command_line::Columns(rows);
}

}  // namespace lockstep::kubectl_plugin

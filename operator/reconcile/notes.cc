#include "operator/reconcile/notes.h"

#include <algorithm>

#include "operator/reconcile/progress.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

namespace condition = api::condition;
using kube::EventNote;

bool IsToldOf(std::string_view type) {
  return type == condition::kComplete || type == condition::kFailed || type == condition::kStalled ||
         type == condition::kSuspended;
}

bool IsWarning(std::string_view type) { return type == condition::kFailed || type == condition::kStalled; }

// An event has 1024 bytes in all.
constexpr std::size_t kMaxReason = 400;
constexpr std::size_t kMaxLines = 500;

// The end of an error message says more than its beginning. Whole lines where there are any.
std::string LastPart(const std::string& text, std::size_t size) {
  if (text.size() <= size) return text;
  const std::size_t line_end = text.find('\n', text.size() - size);
  return line_end + 1 >= text.size() ? Truncate(text, size) : text.substr(line_end + 1);
}

template <typename T>
int64_t Count(const Plan& plan) {
  return std::count_if(plan.actions.begin(), plan.actions.end(),
                       [](const PlannedAction& entry) { return std::holds_alternative<T>(entry.action); });
}

std::string MessageOf(const rendezvous::RoundChange& change) {
  std::string message = "round " + std::to_string(change.round) + ": " + change.reason;
  for (const rendezvous::Departure& departure : change.departures) {
    if (departure.last_lines.empty()) continue;
    return Truncate(message, kMaxReason) + "; last lines of " + departure.pod + ":\n" +
           LastPart(departure.last_lines, kMaxLines);
  }
  return message;
}

}  // namespace

std::vector<EventNote> NotesOfConditions(const api::TrainingJobStatus& before,
                                         const api::TrainingJobStatus& after) {
  std::vector<EventNote> notes;
  for (const api::Condition& now : after.conditions) {
    const api::Condition* old = api::FindCondition(before.conditions, now.type);
    const bool is_new = old == nullptr || old->status != now.status || old->reason != now.reason;
    if (!is_new || !IsToldOf(now.type)) continue;
    if (now.status == api::ConditionStatus::kTrue) {
      notes.push_back({IsWarning(now.type), now.reason, "Reconcile", now.message});
    } else if (now.type == condition::kSuspended && old != nullptr) {
      notes.push_back({false, now.reason, "Reconcile", "spec.suspend is false"});
    }
  }
  return notes;
}

std::vector<EventNote> MakeNotes(const Observed& observed, const Decision& decision, const Plan& plan) {
  std::vector<EventNote> notes;
  if (const int64_t created = Count<CreatePod>(plan); created > 0) {
    notes.push_back({false, "PodsCreated", "CreatePods",
                     "created " + std::to_string(created) + " of " +
                         std::to_string(observed.job.spec.pod_count()) + " worker pods"});
  }
  for (const std::string& failure : decision.failures.notes) {
    notes.push_back({true, std::string(api::reason::kReplicaFailed), "ReplacePod", failure});
  }
  for (const rendezvous::RoundChange& change : NewChanges(observed)) {
    notes.push_back({true, "RoundBroken", "Rendezvous", MessageOf(change)});
  }
  const std::vector<EventNote> conditions = NotesOfConditions(observed.job.status, plan.status);
  notes.insert(notes.end(), conditions.begin(), conditions.end());
  return notes;
}

}  // namespace lockstep::reconcile

#include "operator/reconcile/notes.h"

#include <algorithm>

#include "operator/reconcile/profile_request.h"
#include "operator/reconcile/progress.h"
#include "runtime/common/api/conditions.h"

namespace lockstep::reconcile {
namespace {

namespace condition = api::condition;
using kube::EventNote;

bool HasEvent(std::string_view type) {
  return type == condition::kComplete || type == condition::kFailed || type == condition::kStalled ||
         type == condition::kSuspended;
}

bool IsWarning(std::string_view type) { return type == condition::kFailed || type == condition::kStalled; }

int64_t CountCreated(const std::vector<PlannedAction>& actions) {
  return std::count_if(actions.begin(), actions.end(), [](const PlannedAction& entry) {
    return std::holds_alternative<CreatePod>(entry.action);
  });
}

EventNote NoteOf(const api::DamagedCheckpoint& damaged, const api::TrainingJobSpec& spec) {
  const std::string uri = spec.checkpoint ? spec.checkpoint->uri : "URI";
  const std::string text =
      "the checkpoint of step " + std::to_string(damaged.step) + " is damaged: " + damaged.reason +
      "; training continues from the newest valid one before it, or from the beginning if "
      "there is none. `lockstep checkpoint verify " +
      uri + "` lists all damage";
  return {true, "CheckpointDamaged", "Restore", text};
}

void AddDamages(const api::TrainingJob& job, const api::TrainingJobStatus& after,
                std::vector<EventNote>& notes) {
  const auto& reported = job.status.damaged_checkpoints;
  for (const api::DamagedCheckpoint& damaged : after.damaged_checkpoints) {
    if (std::find(reported.begin(), reported.end(), damaged) == reported.end())
      notes.push_back(NoteOf(damaged, job.spec));
  }
}

void AddConditions(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after,
                   std::vector<EventNote>& notes) {
  for (const api::Condition& now : after.conditions) {
    const api::Condition* old = api::FindCondition(before.conditions, now.type);
    const bool is_new = old == nullptr || old->status != now.status || old->reason != now.reason;
    // Missing replicas have a separate event.
    const bool is_trouble =
        now.type == condition::kDegraded &&
        (now.reason == api::reason::kStraggler || now.reason == api::reason::kStoreUnavailable ||
         now.reason == api::reason::kCheckpointFailed);
    const bool has_event = HasEvent(now.type) || is_trouble || now.reason == api::reason::kShrunk;
    const bool is_covered_by_failed =
        now.type == condition::kStalled && api::IsTrue(after.conditions, condition::kFailed);
    if (!is_new || !has_event || is_covered_by_failed) continue;
    if (now.status == api::ConditionStatus::kTrue) {
      notes.push_back({is_trouble || IsWarning(now.type), now.reason, "Reconcile", now.message});
    } else if (now.type == condition::kSuspended && old != nullptr) {
      notes.push_back({false, now.reason, "Reconcile", "its pods may run"});
    }
  }
}

}  // namespace

std::vector<EventNote> NotesOfStatus(const Observed& observed, const api::TrainingJobStatus& after) {
  std::vector<EventNote> notes;
  for (const rendezvous::RoundChange& change : NewChanges(observed)) {
    notes.push_back({true, "RoundBroken", "Rendezvous", DescriptionOf(change)});
  }
  AddDamages(observed.job, after, notes);
  AddConditions(observed.job.status, after, notes);
  return notes;
}

EventNote NoteOfConflict(const std::string& message) {
  return {true, "InstallationConflict", "Ignore", message};
}

std::vector<EventNote> MakeNotes(const Observed& observed, const Decision& decision,
                                 const std::vector<PlannedAction>& actions,
                                 const api::TrainingJobStatus& after) {
  std::vector<EventNote> notes;
  if (const int64_t created = CountCreated(actions); created > 0) {
    notes.push_back({false, "PodsCreated", "CreatePods",
                     "created " + std::to_string(created) + " of " +
                         std::to_string(observed.job.spec.pod_count()) + " worker pods"});
  }
  for (const std::string& failure : decision.failures.notes) {
    notes.push_back({true, std::string(api::reason::kReplicaFailed), "ReplacePod", failure});
  }
  if (!decision.gang.note.empty()) notes.push_back({true, "GangReleased", "DeletePods", decision.gang.note});
  // In each pass: the recorder writes the event once and counts the rest.
  const auto profile = ProfileRequestOf(observed.job);
  if (decision.mode == Mode::kRun && !profile.ok())
    notes.push_back({true, "ProfileRefused", "Profile", profile.error().message});
  const std::vector<EventNote>& removal = decision.removal.notes;
  notes.insert(notes.end(), removal.begin(), removal.end());
  const std::vector<EventNote> status = NotesOfStatus(observed, after);
  notes.insert(notes.end(), status.begin(), status.end());
  return notes;
}

}  // namespace lockstep::reconcile

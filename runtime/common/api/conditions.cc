#include "runtime/common/api/conditions.h"

#include <algorithm>
#include <utility>

#include "runtime/common/base/strings.h"

namespace lockstep::api {
namespace {

constexpr std::size_t kMaxMessageLength = 4096;  // metav1 permits 32768; more than this is not readable

bool IsTerminal(std::string_view type) { return type == condition::kComplete || type == condition::kFailed; }

}  // namespace

bool SetCondition(std::vector<Condition>& conditions, const ConditionChange& change, int64_t generation,
                  WallTime now) {
  auto found = std::find_if(conditions.begin(), conditions.end(),
                            [&](const Condition& entry) { return entry.type == change.type; });
  const bool is_new = found == conditions.end();
  if (is_new) found = conditions.insert(found, Condition{});
  if (IsTerminal(found->type) && found->status == ConditionStatus::kTrue) return false;
  Condition next = *found;
  next.type = std::string(change.type);
  next.status = change.status;
  next.reason = std::string(change.reason);
  next.message = Truncate(change.message, kMaxMessageLength);
  next.observed_generation = generation;
  if (is_new || next.status != found->status) next.last_transition_time = now;
  const bool changed = is_new || next != *found;
  *found = std::move(next);
  return changed;
}

const Condition* FindCondition(const std::vector<Condition>& conditions, std::string_view type) {
  const auto found = std::find_if(conditions.begin(), conditions.end(),
                                  [&](const Condition& entry) { return entry.type == type; });
  return found == conditions.end() ? nullptr : &*found;
}

bool IsTrue(const std::vector<Condition>& conditions, std::string_view type) {
  const Condition* found = FindCondition(conditions, type);
  return found != nullptr && found->status == ConditionStatus::kTrue;
}

bool IsFinished(const std::vector<Condition>& conditions) {
  return IsTrue(conditions, condition::kComplete) || IsTrue(conditions, condition::kFailed);
}

std::string_view StateOf(const std::vector<Condition>& conditions) {
  if (IsTrue(conditions, condition::kComplete)) return "Complete";
  if (IsTrue(conditions, condition::kFailed)) return "Failed";
  if (IsTrue(conditions, condition::kSuspended)) return "Suspended";
  if (IsTrue(conditions, condition::kStalled)) return "Stalled";
  if (IsTrue(conditions, condition::kRestarting)) return "Restarting";
  if (IsTrue(conditions, condition::kProgressing)) return "Running";
  if (IsTrue(conditions, condition::kScheduled)) return "Starting";
  if (FindCondition(conditions, condition::kScheduled) != nullptr) return "Pending";
  return "Created";
}

}  // namespace lockstep::api

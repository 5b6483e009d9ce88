#include "runtime/checkpoint/ownership.h"

#include <algorithm>
#include <utility>

#include "runtime/common/base/json.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kFolder = "owners/";
constexpr std::string_view kEnd = ".json";

// Empty: the object is not a marker.
std::string UidOf(const std::string& name) {
  if (!name.starts_with(kFolder) || !name.ends_with(kEnd) || name.size() <= kFolder.size() + kEnd.size())
    return "";
  return name.substr(kFolder.size(), name.size() - kFolder.size() - kEnd.size());
}

}  // namespace

std::string MarkerOf(const std::string& uid) { return std::string(kFolder) + uid + std::string(kEnd); }

Ownership::Ownership(ObjectStore& store, protocol::JobIdentity job, OwnershipOptions options,
                     const Clock& clock)
    : store_(store),
      job_(std::move(job)),
      options_(std::move(options)),
      clock_(clock),
      name_(MarkerOf(job_.uid)) {}

Result<void> Ownership::Claim(const Pause& pause) {
  renewing_ = std::jthread();
  owns_ = false;
  if (since_.empty()) since_ = FormatMicroTime(clock_.Now());
  while (true) {
    LOCKSTEP_TRY(Put());
    const Result<bool> is_free = IsFree();
    if (!is_free.ok()) {
      if (is_free.error().code == ErrorCode::kInvalidArgument) End();
      return is_free.error();
    }
    if (!*is_free) {
      owns_ = false;
      if (!pause(kCheckInterval))
        return Error{ErrorCode::kCancelled, "claiming " + options_.uri + " was stopped"};
    } else if (!std::exchange(owns_, true)) {
      continue;
    } else {
      Hold();
      return {};
    }
  }
}

void Ownership::Hold() {
  if (renewing_.joinable() && !renewing_.get_stop_token().stop_requested()) return;
  renewing_ = std::jthread();
  owns_ = true;
  if (since_.empty()) since_ = FormatMicroTime(clock_.Now());
  reached_ = clock_.Steady();
  renewing_ = std::jthread([this](const std::stop_token& stop) { Renew(stop); });
}

void Ownership::Release() { renewing_.request_stop(); }

void Ownership::End() {
  renewing_ = std::jthread();  // otherwise it might write the marker again
  const Result<void> removed = store_.Delete(name_);
  if (!removed.ok())
    log::Warning("this job's marker was not removed; the next job waits until it expires",
                 {{"uri", store_.UriOf(name_)}, {"error", removed.error().message}});
}

Result<bool> Ownership::IsFree() {
  LOCKSTEP_TRY(const std::vector<Marker> markers, ReadMarkers());
  const auto own = std::find_if(markers.begin(), markers.end(),
                                [this](const Marker& marker) { return marker.uid == job_.uid; });
  const std::optional<WallTime> mine = own == markers.end() ? std::nullopt : own->changed;
  bool is_free = true;
  for (const Marker& other : markers) {
    if (other.uid == job_.uid) continue;
    LOCKSTEP_TRY(const bool is_blocked, IsBlockedBy(other, mine));
    is_free = is_free && !is_blocked;
  }
  return is_free;
}

// `mine` is when this job's marker was written, a moment ago.
Result<bool> Ownership::IsBlockedBy(const Marker& other, const std::optional<WallTime>& mine) {
  const SteadyTime now = clock_.Steady();
  const auto [seen, is_new] = observed_.try_emplace(other.uid, Observed{other.content, now});
  const bool lives = !is_new && seen->second.content != other.content;
  if (lives) seen->second = {other.content, now};
  // Compares times of the store's clock, which set both. If that clock was set back, this must not wait
  // forever.
  const bool is_old = mine.has_value() && other.changed.has_value() && *mine - *other.changed > kLease;
  if (!lives && (is_old || now - seen->second.since > kLease)) {
    log::Warning("removing the marker of a job that no longer runs and taking over its location",
                 {{"other_job", other.job}, {"other_uid", other.uid}, {"uri", options_.uri}});
    LOCKSTEP_TRY(store_.Delete(MarkerOf(other.uid)));
    return false;
  }
  // A claim gives way to an owner by itself.
  if (owns_ && !other.owns) return false;
  if (lives && HasPriorityOver(other)) return Refusal(other);
  if (is_new) {
    log::Warning("another job has a marker at this location: waiting to see whether it still runs",
                 {{"other_job", other.job},
                  {"other_uid", other.uid},
                  {"uri", options_.uri},
                  {"at_most_seconds", kLease.count()}});
  }
  return true;
}

bool Ownership::HasPriorityOver(const Marker& other) const {
  return other.owns || std::pair(other.since, other.uid) < std::pair(since_, job_.uid);
}

Result<std::vector<Ownership::Marker>> Ownership::ReadMarkers() {
  LOCKSTEP_TRY(const std::vector<ObjectInfo> objects, store_.List());
  std::vector<Marker> markers;
  for (const ObjectInfo& object : objects) {
    Marker marker{
        .uid = UidOf(object.name), .job = "?", .since = {}, .content = {}, .changed = object.changed};
    if (marker.uid.empty()) continue;
    const auto content = store_.Get(object.name);
    if (!content.ok() && content.error().code == ErrorCode::kNotFound) continue;  // removed meanwhile
    if (!content.ok()) return content.error();
    marker.content = *content;
    // A marker that cannot be read counts as an owner's.
    if (const auto json = ParseJson(*content); json.ok()) {
      marker.job = StringAt(*json, {"jobName"}, "?");
      marker.owns = BoolAt(*json, {"owns"}, true);
      marker.since = StringAt(*json, {"since"});
    }
    markers.push_back(std::move(marker));
  }
  return markers;
}

Result<void> Ownership::Put() {
  return store_.Put(name_, DumpJson({{"jobUid", job_.uid},
                                     {"jobName", job_.name},
                                     {"owns", owns_},
                                     {"since", since_},
                                     {"time", FormatMicroTime(clock_.Now())},
                                     {"holder", options_.holder}}) +
                               "\n");
}

Error Ownership::Refusal(const Marker& other) const {
  return {
      ErrorCode::kInvalidArgument,
      "spec.checkpoint.uri: " + options_.uri + " is in use by job \"" + other.job + "\" (uid " + other.uid +
          "), which is running: give each job its own folder, or start this job after that one has ended"};
}

void Ownership::Renew(const std::stop_token& stop) {
  bool fails = false;
  while (!stop.stop_requested()) {
    const Result<void> renewed = RenewOnce();
    if (lost().has_value()) return log::Error("checkpoint location lost", {{"error", lost()->message}});
    if (!std::exchange(fails, !renewed.ok()) && !renewed.ok())
      log::Warning("this job's marker was not renewed; another job may take its checkpoint location",
                   {{"uri", store_.UriOf(name_)}, {"error", renewed.error().message}});
    PauseFor(options_.renewal, stop);
  }
}

Result<void> Ownership::RenewOnce() {
  if (clock_.Steady() - reached_ > kLease) LOCKSTEP_TRY(CheckWhetherLost());
  if (lost().has_value()) return {};
  LOCKSTEP_TRY(Put());
  reached_ = clock_.Steady();
  return {};
}

// Another job may have considered this job's marker to be that of a dead job.
Result<void> Ownership::CheckWhetherLost() {
  LOCKSTEP_TRY(const std::vector<Marker> markers, ReadMarkers());
  for (const Marker& other : markers) {
    if (other.uid == job_.uid || !other.owns) continue;
    const MutexLock lock(mutex_);
    lost_ =
        Error{ErrorCode::kInvalidArgument,
              "spec.checkpoint.uri: " + options_.uri + " was taken over by job \"" + other.job + "\" (uid " +
                  other.uid + ") while this one did not reach it for " + std::to_string(kLease.count()) +
                  " s: nothing more is stored there; restart this job with its own folder"};
  }
  return {};
}

std::optional<Error> Ownership::lost() const {
  const MutexLock lock(mutex_);
  return lost_;
}

}  // namespace lockstep::checkpoint

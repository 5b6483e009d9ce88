#include "operator/kube/leader_election.h"

#include <algorithm>
#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::kube {

LeaderElection::LeaderElection(KubeClient& client, const Clock& clock, LeaderElectionOptions options)
    : client_(client),
      clock_(clock),
      options_(std::move(options)),
      observer_(options_.identity, options_.timings) {}

bool LeaderElection::Acquire(const std::stop_token& stop) {
  std::string last_error;
  while (!stop.stop_requested()) {
    deadline_ = clock_.Steady() + options_.timings.renew_deadline;
    const auto held = Try();
    if (held.ok() && *held) {
      watch_ = std::jthread([this](const std::stop_token& released) { Watch(released); });
      return true;
    }
    if (!held.ok() && std::exchange(last_error, held.error().ToString()) != held.error().ToString()) {
      log::Warning("cannot take the leader lease yet",
                   {{"lease", options_.lease.ToString()}, {"error", last_error}});
    }
    PauseFor(options_.timings.look_period, stop);
  }
  return false;
}

Result<void> LeaderElection::Keep(const std::stop_token& stop) {
  std::string last_error;
  while (PauseFor(options_.timings.retry_period, stop)) {
    const auto held = Try();
    if (held.ok() && !*held) {
      return Error{ErrorCode::kAborted, "the lease " + options_.lease.ToString() + " has another holder"};
    }
    const std::string error = held.ok() ? "" : held.error().ToString();
    if (std::exchange(last_error, error) != error && !error.empty()) {
      log::Warning("cannot renew the leader lease", {{"lease", options_.lease.ToString()}, {"error", error}});
    }
  }
  return {};
}

void LeaderElection::Release() {
  watch_ = {};
  deadline_ = clock_.Steady() + options_.timings.renew_deadline;
  auto current = client_.Get(kLeases, options_.lease);
  if (!current.ok()) return;
  LeaseRecord record = LeaseRecordFromJson(*current);
  if (record.holder != options_.identity) return;
  record.holder.clear();
  record.duration_seconds = 1;
  record.renew_time = FormatMicroTime(clock_.Now());
  if (const auto written = Write(*current, record); !written.ok()) {
    log::Warning("could not release the leader lease", {{"error", written.error().ToString()}});
  }
}

Milliseconds LeaderElection::RequestTime() const {
  return std::min(std::chrono::duration_cast<Milliseconds>(TimeLeft()), options_.timings.renew_deadline / 2);
}

Result<bool> LeaderElection::Try() {
  // Others count from the moment at which they see the renewal, which is never before this one.
  const SteadyTime begin = clock_.Steady();
  auto current = client_.Get(kLeases, options_.lease);
  if (!current.ok() && current.error().code != ErrorCode::kNotFound) return current.error();
  const bool exists = current.ok();
  const Json lease =
      exists ? *current
             : Json{{"metadata", {{"namespace", options_.lease.name_space}, {"name", options_.lease.name}}}};
  const LeaseDecision decision =
      observer_.Decide(exists ? LeaseRecordFromJson(lease) : LeaseRecord{}, clock_.Steady(), clock_.Now());
  if (decision.move == LeaseMove::kWait) return false;
  const auto written = Write(lease, decision.next);
  // Another candidate was faster, or changed it under us: look again.
  if (!written.ok() &&
      (written.error().code == ErrorCode::kConflict || written.error().code == ErrorCode::kAlreadyExists)) {
    return decision.move == LeaseMove::kRenew ? Result<bool>(written.error()) : Result<bool>(false);
  }
  if (!written.ok()) return written.error();
  (void)observer_.Decide(LeaseRecordFromJson(*written), clock_.Steady(), clock_.Now());
  if (TimeLeft() <= SteadyTime::duration::zero()) {
    return Error{ErrorCode::kDeadlineExceeded, "the answer came after the renew deadline"};
  }
  deadline_ = begin + options_.timings.renew_deadline;
  return true;
}

Result<Json> LeaderElection::Write(const Json& current, const LeaseRecord& record) {
  Json lease = current;
  lease["spec"] = LeaseSpecToJson(record);
  // The resourceVersion in the metadata makes Replace refuse what another candidate changed meanwhile.
  return lease["metadata"].contains("resourceVersion") ? client_.Replace(kLeases, lease)
                                                       : client_.Create(kLeases, lease);
}

void LeaderElection::Watch(const std::stop_token& stop) const {
  while (!stop.stop_requested()) {
    const auto left = std::chrono::ceil<Milliseconds>(TimeLeft());
    if (left <= Milliseconds::zero()) return options_.on_expired();
    PauseFor(std::min(left, options_.timings.retry_period), stop);
  }
}

}  // namespace lockstep::kube

#include "operator/kube/leader_election.h"

#include <utility>

#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::kube {

LeaderElection::LeaderElection(KubeClient& client, const Clock& clock, ObjectKey lease, std::string identity,
                               LeaseTimings timings)
    : client_(client),
      clock_(clock),
      lease_(std::move(lease)),
      identity_(std::move(identity)),
      timings_(timings),
      observer_(identity_, timings) {}

bool LeaderElection::Acquire(const std::stop_token& stop) {
  std::string last_error;
  while (!stop.stop_requested()) {
    const auto held = Try();
    if (held.ok() && *held) return true;
    if (!held.ok() && std::exchange(last_error, held.error().ToString()) != held.error().ToString()) {
      log::Warning("cannot take the leader lease yet", {{"lease", lease_.ToString()}, {"error", last_error}});
    }
    PauseFor(timings_.look_period, stop);
  }
  return false;
}

Result<void> LeaderElection::Keep(const std::stop_token& stop) {
  SteadyTime renewed = clock_.Steady();
  while (!stop.stop_requested()) {
    if (!PauseFor(timings_.retry_period, stop)) return {};
    const auto held = Try();
    if (held.ok() && *held) {
      renewed = clock_.Steady();
    } else if (held.ok()) {
      return Error{ErrorCode::kAborted, "the lease " + lease_.ToString() + " has another holder"};
    } else if (clock_.Steady() - renewed > timings_.renew_deadline) {
      return held.error().WithContext("renewing the lease " + lease_.ToString());
    }
  }
  return {};
}

void LeaderElection::Release() {
  auto current = client_.Get(kLeases, lease_);
  if (!current.ok()) return;
  LeaseRecord record = LeaseRecordFromJson(*current);
  if (record.holder != identity_) return;
  record.holder.clear();
  record.duration_seconds = 1;
  record.renew_time = FormatMicroTime(clock_.Now());
  if (const auto written = Write(*current, record); !written.ok()) {
    log::Warning("could not release the leader lease", {{"error", written.error().ToString()}});
  }
}

Result<bool> LeaderElection::Try() {
  auto current = client_.Get(kLeases, lease_);
  if (!current.ok() && current.error().code != ErrorCode::kNotFound) return current.error();
  const bool exists = current.ok();
  const Json lease =
      exists ? *current : Json{{"metadata", {{"namespace", lease_.name_space}, {"name", lease_.name}}}};
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
  return true;
}

Result<Json> LeaderElection::Write(const Json& current, const LeaseRecord& record) {
  Json lease = current;
  lease["spec"] = LeaseSpecToJson(record);
  // The resourceVersion in the metadata makes Replace refuse what another candidate changed meanwhile.
  return lease["metadata"].contains("resourceVersion") ? client_.Replace(kLeases, lease)
                                                       : client_.Create(kLeases, lease);
}

}  // namespace lockstep::kube

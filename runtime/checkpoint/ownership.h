#pragma once
// Which job a checkpoint location belongs to. A running job keeps owners/<uid>.json there, and another job
// that finds it is rejected. Two jobs never own one location, whatever their clocks say and however their
// requests interleave, as long as the store lists what was put (all supported stores do):
//
//   A job writes its marker as a claim, then lists the other markers, and owns the location only if it finds
//   none that counts. Of two jobs, the one that writes its marker last lists after both markers exist, so it
//   sees the other: it is impossible that neither sees the other. If both see each other, the one with the
//   earlier claim has priority (by their own clocks, then by uid; this decides only which one gives way); it
//   waits until the other is gone. An owner has priority over any claim.
//   A marker does not prove that its job is running, because a killed job leaves its marker. So a job gives
//   way only to a job that it saw renewing its marker, and deletes a marker that was not renewed for kLease.
//   A job checks twice before it owns the location: Azure does not list an object while it is being
//   rewritten.
//
// A running job that does not reach the store for kLease may lose its location to another job; it checks this
// before it renews its marker (lost). The step thread calls everything here except lost; a separate thread
// renews the marker.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checkpoint/object_store.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::checkpoint {

// Three renewals may fail, each after the store's own retries.
inline constexpr std::chrono::seconds kLease{60};
inline constexpr std::chrono::seconds kRenewal{15};
// Between two checks of a marker that another job left.
inline constexpr std::chrono::seconds kCheckInterval{3};

// The name of a job's marker below the URI.
[[nodiscard]] std::string MarkerOf(const std::string& uid);

struct OwnershipOptions {
  std::string uri;     // spec.checkpoint.uri, for errors
  std::string holder;  // the process, for error messages
  Milliseconds renewal = kRenewal;
};

class Ownership {
 public:
  // Waits that long. Returns false if the claim should end.
  using Pause = std::function<bool(Milliseconds)>;

  Ownership(ObjectStore& store, protocol::JobIdentity job, OwnershipOptions options, const Clock& clock);

  // Returns when the location belongs to this job: at once if there is no other job's marker, else after at
  // most kLease. Then renews the marker. kInvalidArgument: it belongs to another job. kCancelled: `pause`
  // returned false. A cancelled claim continues where it was.
  [[nodiscard]] Result<void> Claim(const Pause& pause);
  // Renews the marker of a location that belongs to this job, also if another process of the job claimed it.
  void Hold();
  // Another process of the job renews the marker from now on. Returns at once.
  void Release();
  // The job ends: deletes the marker, after at most one request in flight.
  void End();
  // Set if another job has taken the location meanwhile; this job must not store anything there any more. Any
  // thread.
  [[nodiscard]] std::optional<Error> lost() const;

 private:
  struct Marker {
    std::string uid;
    std::string job;
    bool owns = true;
    std::string since;
    std::string content;
    std::optional<WallTime> changed;  // by the store's clock
  };
  struct Observed {
    std::string content;
    SteadyTime since{};
  };

  [[nodiscard]] Result<bool> IsFree();
  [[nodiscard]] Result<bool> IsBlockedBy(const Marker& other, const std::optional<WallTime>& mine);
  [[nodiscard]] bool HasPriorityOver(const Marker& other) const;
  [[nodiscard]] Result<std::vector<Marker>> ReadMarkers();
  [[nodiscard]] Result<void> Put();
  [[nodiscard]] Error Refusal(const Marker& other) const;
  void Renew(const std::stop_token& stop);
  [[nodiscard]] Result<void> RenewOnce();
  [[nodiscard]] Result<void> CheckWhetherLost();

  ObjectStore& store_;
  const protocol::JobIdentity job_;
  const OwnershipOptions options_;
  const Clock& clock_;
  const std::string name_;  // of this job's marker
  std::string since_;       // when this job claimed; empty before the first claim
  bool owns_ = false;
  std::map<std::string, Observed> observed_;  // by uid
  SteadyTime reached_{};                      // when this process last reached the store
  mutable Mutex mutex_;
  std::optional<Error> lost_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread renewing_;  // last member: stops before the others are destroyed
};

}  // namespace lockstep::checkpoint

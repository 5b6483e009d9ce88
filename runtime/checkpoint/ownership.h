#pragma once
// Which job a place for checkpoints belongs to. Each job keeps owners/<uid>.json there while it runs, and one
// that meets another's is refused. Two never own a place, whatever their clocks say and however their
// requests interleave, as long as the store lists what was put (all of ours do):
//
//   A job puts its marker as one that claims, then lists the others', and owns the place only once it saw
//   none that counts. Of two, whoever put its marker last lists after both are there, so it sees the other:
//   not both can see nobody. Where both see each other, the one that claimed first goes before the other (by
//   their own clocks, then by uid: it decides who gives way, not whether anybody does); it waits until the
//   other is gone. An owner goes before whoever claims.
//   A marker is no proof that its job lives: killed ones leave theirs. So a job gives way only to one that it
//   saw put its marker again, and takes away one that nobody put again for kLease.
//   Before it owns the place a job looks twice: Azure shows nothing of an object while it is written anew.
//
// A job that lives but does not reach the store for kLease may lose its place to one that does; it looks
// before it puts its marker again (lost). The step thread calls everything here but lost; a thread of its own
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
// Between two looks at a marker that somebody left.
inline constexpr std::chrono::seconds kLook{3};

// The name of a job's marker below the URI.
[[nodiscard]] std::string MarkerOf(const std::string& uid);

struct OwnershipOptions {
  std::string uri;     // spec.checkpoint.uri, for errors
  std::string holder;  // the process, for people
  Milliseconds renewal = kRenewal;
};

class Ownership {
 public:
  // Waits that long; false: the claim is to end.
  using Pause = std::function<bool(Milliseconds)>;

  Ownership(ObjectStore& store, protocol::JobIdentity job, OwnershipOptions options, const Clock& clock);

  // Returns once the place is this job's, at once where no other job's marker is there, else after kLease at
  // most; then renews the marker. kInvalidArgument: it is another's. kCancelled: `pause` says so. A claim
  // that was cancelled goes on where it was.
  [[nodiscard]] Result<void> Claim(const Pause& pause);
  // Renews the marker of a place that is this job's, also where another process of the job claimed it.
  void Hold();
  // Another process of the job renews it from now on. Returns at once.
  void LetGo();
  // The job ends: takes the marker away, after at most one request that is under way.
  void End();
  // Another job has taken the place meanwhile: this one must store nothing there any more. Any thread.
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
  struct Seen {
    std::string content;
    SteadyTime since{};
  };

  [[nodiscard]] Result<bool> IsFree();
  [[nodiscard]] Result<bool> IsInTheWay(const Marker& other, const std::optional<WallTime>& mine);
  [[nodiscard]] bool GoesBefore(const Marker& other) const;
  [[nodiscard]] Result<std::vector<Marker>> ReadMarkers();
  [[nodiscard]] Result<void> Put();
  [[nodiscard]] Error Refusal(const Marker& other) const;
  void Renew(const std::stop_token& stop);
  [[nodiscard]] Result<void> RenewOnce();
  [[nodiscard]] Result<void> LookWhetherLost();

  ObjectStore& store_;
  const protocol::JobIdentity job_;
  const OwnershipOptions options_;
  const Clock& clock_;
  const std::string name_;  // of its marker
  std::string since_;       // the claim; empty before the first
  bool owns_ = false;
  std::map<std::string, Seen> seen_;  // by uid
  SteadyTime reached_{};              // the store, of whoever renews
  mutable Mutex mutex_;
  std::optional<Error> lost_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread renewing_;  // last: it stops before the rest goes
};

}  // namespace lockstep::checkpoint

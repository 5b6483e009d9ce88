#pragma once
// Lets the members of a round form it again while the rendezvous service is away (README.md, "While the
// service does not answer"). The supervisor of the round's rank 0 hosts it, for the newest round that the
// service gave it. A round is formed again by all of its members or not at all: so it keeps its number, and
// no second round of that number with other members can exist. Any thread; waiting long polls block no
// thread.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/http/server.h"
#include "runtime/common/protocol/rendezvous.h"

namespace lockstep::launch {

class FormationHost {
 public:
  explicit FormationHost(const Clock& clock);

  // The bearer token of the members. They get it from the service together with their assignment.
  [[nodiscard]] const std::string& key() const { return key_; }

  // Serves this round from now on, which the service has formed; `world` is its number of ranks.
  void Host(int64_t round, int world);
  // The round is no longer hosted here: requests for it get 409.
  void Close() { Host(0, 0); }

  // Handles POST kFormPath and kFormationWatchPath. 401: wrong key. 409: another round than the hosted one,
  // or none is hosted.
  void Handle(const http::ServerRequest& request, const http::Responder& respond);
  // Answers long polls whose time is over; must be called several times a second.
  void Tick();

 private:
  struct Pending {
    protocol::FormRequest request;
    http::Responder respond;
    SteadyTime deadline;
  };
  struct Watcher {
    http::Responder respond;
    SteadyTime deadline;
  };
  using Outbox = std::vector<std::pair<http::Responder, http::Response>>;

  void Form(const protocol::FormRequest& request, const http::Responder& respond, Outbox& outbox)
      LOCKSTEP_REQUIRES(mutex_);
  void Watch(const protocol::FormationWatch& request, const http::Responder& respond, Outbox& outbox)
      LOCKSTEP_REQUIRES(mutex_);
  void CloseIfComplete(Outbox& outbox) LOCKSTEP_REQUIRES(mutex_);
  void EndWatches(Outbox& outbox) LOCKSTEP_REQUIRES(mutex_);

  const Clock& clock_;
  const std::string key_;
  Mutex mutex_;
  int64_t round_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int world_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t formation_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // newest
  std::optional<protocol::FormAnswer> formed_
      LOCKSTEP_GUARDED_BY(mutex_);  // its answer, if it was formed here
  std::map<int, Pending> pending_
      LOCKSTEP_GUARDED_BY(mutex_);  // by first rank: members that wait for the next formation
  std::vector<Watcher> watchers_ LOCKSTEP_GUARDED_BY(mutex_);  // of the newest formation
};

}  // namespace lockstep::launch

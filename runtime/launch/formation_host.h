#pragma once
// Where the members of a round form it again while the rendezvous service is away (README.md, "While the
// service does not answer"). Hosted by the supervisor that has the round's rank 0, for the one round that the service gave it
// last. A round is formed again by all of its members or not at all: so it keeps its number, and no second
// round of that number with other members can come to be. Any thread; long polls hold none.

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

  // What members must bring as their bearer token. They have it from the service, with their place.
  [[nodiscard]] const std::string& key() const { return key_; }

  // From now on for this round, which the service has formed; `world` is its ranks.
  void Host(int64_t round, int world);
  // The round is not ours any more: requests for it are answered 409.
  void Close() { Host(0, 0); }

  // POST kFormPath and kFormationWatchPath. 401: a wrong key; 409: another round than the one hosted, or none.
  void Handle(const http::ServerRequest& request, const http::Responder& respond);
  // Answers long polls that have waited long enough; call it several times a second.
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
  int64_t formation_ LOCKSTEP_GUARDED_BY(mutex_) = 0;                       // newest
  std::optional<protocol::FormAnswer> formed_ LOCKSTEP_GUARDED_BY(mutex_);  // it, where it was formed here
  std::map<int, Pending> pending_ LOCKSTEP_GUARDED_BY(mutex_);  // by first rank: they want the next one
  std::vector<Watcher> watchers_ LOCKSTEP_GUARDED_BY(mutex_);   // of the newest
};

}  // namespace lockstep::launch

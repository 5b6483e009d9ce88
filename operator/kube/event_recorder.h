#pragma once
// Records Kubernetes events (events.k8s.io/v1) that a user should act on. Record never blocks: a separate
// thread sends the events. An identical event raises a counter. Events that do not fit the queue are dropped,
// and the log counts them.

#include <condition_variable>
#include <deque>
#include <map>
#include <string>
#include <thread>

#include "operator/kube/client.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::kube {

struct EventNote {
  bool warning = false;
  std::string reason;  // CamelCase, from a closed set
  std::string action;  // what the controller did: "CreatePods"
  std::string note;    // for people, truncated to 1 kB

  friend auto operator<=>(const EventNote&, const EventNote&) = default;
};

// Pure: the Event object for `regarding` (a reference: apiVersion, kind, namespace, name, uid).
[[nodiscard]] Json EventToJson(const Json& regarding, const EventNote& note, const std::string& instance,
                               WallTime now);

class EventRecorder {
 public:
  EventRecorder(KubeWriter& writer, const Clock& clock, std::string instance);
  // Sends queued events for at most two seconds, then stops.
  ~EventRecorder();

  void Record(const Json& regarding, const EventNote& note);

 private:
  struct Pending {
    Json regarding;
    EventNote note;
  };
  struct Series {
    ObjectKey key;
    int64_t count = 1;
    SteadyTime written{};
  };

  void Run(const std::stop_token& stop);
  void Send(const Pending& pending);
  void SendFirst(const Pending& pending, const std::string& series_key);
  void SendAgain(Series& series);

  KubeWriter& writer_;
  const Clock& clock_;
  const std::string instance_;
  std::map<std::string, Series> series_;  // owned by thread_
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Pending> queue_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: joins before the other members are destroyed
};

}  // namespace lockstep::kube

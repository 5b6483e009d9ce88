#include "runtime/comm/connect_unless_stopped.h"

#include <condition_variable>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/common/base/mutex.h"

namespace lockstep::comm {
namespace {

struct Attempt {
  Mutex mutex;
  std::condition_variable_any done;
  bool given_up LOCKSTEP_GUARDED_BY(mutex) = false;
  std::optional<Result<std::shared_ptr<Communicator>>> outcome LOCKSTEP_GUARDED_BY(mutex);
};

}  // namespace

Result<std::shared_ptr<Communicator>> ConnectUnlessStopped(const Place& place, Listener listener,
                                                           const Deadlines& deadlines, std::stop_token stop,
                                                           const DeviceUse& device) {
  // Shared, because an abandoned attempt outlives this call.
  auto attempt = std::make_shared<Attempt>();
  std::thread([attempt, place, listener = std::move(listener), deadlines, device]() mutable {
    auto outcome = Communicator::Connect(place, std::move(listener), deadlines, device);
    const MutexLock lock(attempt->mutex);
    // The caller has given up: close the connections now, because peers would count on a rank that never
    // joins.
    if (attempt->given_up) outcome = Error{ErrorCode::kCancelled, "given up"};
    attempt->outcome = std::move(outcome);
    attempt->done.notify_all();
  }).detach();
  MutexLock lock(attempt->mutex);
  if (attempt->done.wait(lock, stop,
                         [&]() LOCKSTEP_REQUIRES(attempt->mutex) { return attempt->outcome.has_value(); })) {
    return std::move(*attempt->outcome);
  }
  attempt->given_up = true;
  return Error{ErrorCode::kCancelled, "the round was over before its ranks were connected"};
}

}  // namespace lockstep::comm

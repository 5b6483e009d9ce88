#include "runtime/launch/program/checkpoint_lookout.h"

#include <condition_variable>
#include <cstdint>
#include <utility>

#include "runtime/common/base/mutex.h"

namespace lockstep::launch {
namespace {

constexpr Milliseconds kPeriod{5'000};
// A file that has not been changed for this time is complete. Programs that write a file slowly rename it afterwards.
constexpr Milliseconds kSettleTime{10'000};

}  // namespace

struct CheckpointLookout::Shared {
  Mutex mutex;
  std::condition_variable_any changed;
  bool is_running LOCKSTEP_GUARDED_BY(mutex) = true;  // the program
  int64_t wanted LOCKSTEP_GUARDED_BY(mutex) = 1;      // looks, of those that are waited for
  int64_t done LOCKSTEP_GUARDED_BY(mutex) = 0;
  std::optional<ProgramCheckpoint> newest LOCKSTEP_GUARDED_BY(mutex);
};

CheckpointLookout::CheckpointLookout(std::string folder)
    : shared_(std::make_shared<Shared>()),
      thread_([folder = std::move(folder), shared = shared_](const std::stop_token& stop) {
        Run(folder, *shared, stop);
      }) {}

CheckpointLookout::~CheckpointLookout() {
  thread_.request_stop();
  thread_.detach();
}

std::optional<ProgramCheckpoint> CheckpointLookout::TakeNew() {
  const MutexLock lock(shared_->mutex);
  if (!shared_->newest.has_value() || shared_->newest == taken_) return std::nullopt;
  taken_ = shared_->newest;
  return taken_;
}

void CheckpointLookout::ProgramStarted() {
  const MutexLock lock(shared_->mutex);
  shared_->is_running = true;
}

void CheckpointLookout::ProgramEnded(Milliseconds limit) {
  Shared& shared = *shared_;
  MutexLock lock(shared.mutex);
  shared.is_running = false;
  const int64_t mine = ++shared.wanted;
  shared.changed.notify_all();
  shared.changed.wait_for(lock, limit, [&]() LOCKSTEP_REQUIRES(shared.mutex) { return shared.done >= mine; });
}

void CheckpointLookout::Run(const std::string& folder, Shared& shared, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool is_running = true;
    int64_t number = 0;
    {
      MutexLock lock(shared.mutex);
      shared.changed.wait_for(lock, stop, kPeriod,
                              [&]() LOCKSTEP_REQUIRES(shared.mutex) { return shared.done < shared.wanted; });
      is_running = shared.is_running;
      number = shared.wanted;
    }
    const WallTime now = SystemClock().Now();
    auto newest = NewestCheckpoint(folder, is_running ? now - kSettleTime : now);
    const MutexLock lock(shared.mutex);
    shared.done = number;
    if (newest.has_value()) shared.newest = std::move(newest);
    shared.changed.notify_all();
  }
}

}  // namespace lockstep::launch

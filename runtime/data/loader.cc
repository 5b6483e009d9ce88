#include "runtime/data/loader.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <thread>

#include "runtime/common/base/mutex.h"

namespace lockstep::data {
namespace {

// Holds one of the two.
struct Made {
  Batch batch;
  std::exception_ptr failure;
};

Made Make(const Loader::Read& read, const Draw& draw) {
  try {
    return {.batch = read(draw)};
  } catch (...) {
    return {.failure = std::current_exception()};
  }
}

}  // namespace

struct Loader::State {
  const Read read;
  const int64_t prefetch;
  Mutex mutex;
  std::condition_variable_any changed;
  Source source LOCKSTEP_GUARDED_BY(mutex);
  uint64_t generation LOCKSTEP_GUARDED_BY(mutex) = 0;  // of the source: batches of an older one are dropped
  int64_t next_made LOCKSTEP_GUARDED_BY(mutex) = 0;    // next n to prepare
  int64_t next_taken LOCKSTEP_GUARDED_BY(mutex) = 0;   // next n that Next returns
  std::optional<int64_t> end LOCKSTEP_GUARDED_BY(mutex);  // the n after the last one
  std::map<int64_t, Made> ready LOCKSTEP_GUARDED_BY(mutex);
  std::vector<std::jthread> threads;  // last member: they stop before the others are destroyed

  void Work(std::stop_token stop) {
    MutexLock lock(mutex);
    while (changed.wait(lock, stop, [this]() LOCKSTEP_REQUIRES(mutex) { return CanMake(); })) {
      const uint64_t mine = generation;
      const int64_t n = next_made++;
      const auto draw = source(n);
      if (!draw.has_value()) {
        end = n;
        changed.notify_all();
        continue;
      }
      lock.unlock();
      Made made = Make(read, *draw);
      lock.lock();
      if (mine == generation) ready.emplace(n, std::move(made));
      changed.notify_all();
    }
  }

  [[nodiscard]] bool CanMake() const LOCKSTEP_REQUIRES(mutex) {
    return source && !end.has_value() && next_made - next_taken < prefetch;
  }
};

Loader::Loader(Read read, int workers, int prefetch)
    : state_(new State{.read = std::move(read), .prefetch = std::max(1, prefetch)}) {
  for (int i = 0; i < workers; ++i) {
    state_->threads.emplace_back([state = state_.get()](std::stop_token stop) { state->Work(stop); });
  }
}

Loader::~Loader() = default;

void Loader::Start(Source source) {
  const MutexLock lock(state_->mutex);
  state_->source = std::move(source);
  ++state_->generation;
  state_->next_made = 0;
  state_->next_taken = 0;
  state_->end.reset();
  state_->ready.clear();
  state_->changed.notify_all();
}

Result<Batch> Loader::Next(std::stop_token stop) {
  MutexLock lock(state_->mutex);
  if (state_->threads.empty()) {
    const auto draw = state_->source(state_->next_made++);
    if (!draw.has_value()) return Error{ErrorCode::kNotFound, "no more batches"};
    return state_->read(*draw);
  }
  const int64_t n = state_->next_taken;
  const bool there = state_->changed.wait(lock, std::move(stop), [&]() LOCKSTEP_REQUIRES(state_->mutex) {
    return state_->ready.contains(n) || (state_->end.has_value() && n >= *state_->end);
  });
  if (!there) return Error{ErrorCode::kCancelled, "loading was stopped"};
  const auto found = state_->ready.find(n);
  if (found == state_->ready.end()) return Error{ErrorCode::kNotFound, "no more batches"};
  Made made = std::move(found->second);
  state_->ready.erase(found);
  ++state_->next_taken;
  state_->changed.notify_all();
  if (made.failure) std::rethrow_exception(made.failure);
  return std::move(made.batch);
}

}  // namespace lockstep::data

#include "runtime/checkpoint/checkpointer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <set>
#include <thread>
#include <utility>

#include "runtime/checkpoint/host_copy.h"
#include "runtime/checkpoint/open_store.h"
#include "runtime/checkpoint/save_writer.h"
#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/token_bucket.h"
#include "runtime/common/protocol/environment.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;

// The maximum time of a request that an abandoned save has begun.
constexpr auto kLastRequest = 60s;
// Between two signs of life of a rank that is throttled.
constexpr Milliseconds kBetweenSigns = 1s;

std::shared_ptr<HostCopy> CopyOfShare(const Snapshot& snapshot, HostCopy* spare) {
  const std::vector<int> writers =
      snapshot.writers.empty() ? DivideTensors(snapshot.tensors, snapshot.world) : snapshot.writers;
  std::vector<NamedTensor> share;
  for (std::size_t i = 0; i < writers.size(); ++i) {
    if (writers[i] != snapshot.rank) continue;
    share.push_back(snapshot.tensors[i]);
  }
  return std::make_shared<HostCopy>(share, spare);
}

}  // namespace

struct Checkpointer::State {
  api::CheckpointSpec spec;
  protocol::JobIdentity job;
  Json training;
  std::unique_ptr<ObjectStore> store;
  const SystemClock clock{};
  Ownership ownership{*store, job, {.uri = spec.uri, .holder = EnvOr(protocol::env::kPodName, "")}, clock};

  Mutex mutex;
  std::condition_variable_any changed;
  std::optional<PendingSave> waiting LOCKSTEP_GUARDED_BY(mutex);
  std::vector<PendingSave> dropped
      LOCKSTEP_GUARDED_BY(mutex);  // without tensors; the writer still has to report them
  // Bytes.
  TokenBucket turns LOCKSTEP_GUARDED_BY(mutex){static_cast<double>(spec.upload_bytes_per_second.value_or(1)),
                                               0};
  int waiting_callers LOCKSTEP_GUARDED_BY(mutex) = 0;
  std::stop_source running LOCKSTEP_GUARDED_BY(mutex);  // of the save being written
  bool busy LOCKSTEP_GUARDED_BY(mutex) = false;
  std::shared_ptr<HostCopy> spare
      LOCKSTEP_GUARDED_BY(mutex);  // the copy of the previous save, for its memory
  std::vector<SaveOutcome> outcomes LOCKSTEP_GUARDED_BY(mutex);
  // Owned by the thread that calls Copy: the round and step of the last copy, and the number of attempts.
  int64_t last_round = -1, last_step = -1;
  int attempt = 0;
  std::optional<PendingSave> copied;
  std::vector<protocol::CheckpointDamaged> damaged;  // owned by the thread that loads
  SaveWriter writer{spec,
                    job,
                    training,
                    *store,
                    ownership,
                    clock,
                    [this](const PendingSave& save, int64_t bytes, const std::function<void()>& held_back) {
                      AwaitTurn(save, bytes, held_back);
                    }};
  std::jthread thread;  // last member: stops before the others are destroyed

  // Evaluations under another earlyStop rule, or of another job, cannot be compared with this job's.
  [[nodiscard]] bool CountsItsEvaluations(const Manifest& manifest) const {
    const auto rule = [](const Json& of) {
      const Json* found = FindJson(of, {"earlyStop"});
      return found == nullptr ? Json() : *found;
    };
    return manifest.job_uid == job.uid && rule(manifest.training) == rule(training);
  }

  void Run(std::stop_token stop) {
    const std::stop_callback give_up(stop, [this] { Abandon(); });
    MutexLock lock(mutex);
    while (changed.wait(
        lock, stop, [this]() LOCKSTEP_REQUIRES(mutex) { return waiting.has_value() || !dropped.empty(); })) {
      const std::vector<PendingSave> others = std::exchange(dropped, {});
      const std::optional<PendingSave> save = std::exchange(waiting, std::nullopt);
      if (save) running = save->stop;
      busy = true;
      lock.unlock();
      for (const PendingSave& other : others) writer.Drop(other);
      std::optional<SaveOutcome> outcome;
      if (save) outcome = writer.Write(*save);
      lock.lock();
      busy = false;
      if (save) spare = save->share;
      if (outcome && (!outcome->error || !save->stop.stop_requested()))
        outcomes.push_back(*std::move(outcome));
      changed.notify_all();
    }
  }

  // Returns memory for a new share. Takes that of a waiting save first, because that save is dropped in any
  // case.
  std::shared_ptr<HostCopy> TakeSpare() {
    const MutexLock lock(mutex);
    if (waiting) spare = waiting->share;
    DropWaiting();
    return std::exchange(spare, nullptr);
  }

  void Abandon() {
    const MutexLock lock(mutex);
    DropWaiting();
    // After the end of the round, only rank 0 still handles dropped saves; the others have no rank to report
    // to.
    std::erase_if(dropped, [](const PendingSave& save) { return save.place.rank != 0; });
    running.request_stop();
    changed.notify_all();
  }

  void DropWaiting() LOCKSTEP_REQUIRES(mutex) {
    if (!waiting) return;
    waiting->share.reset();
    dropped.push_back(*std::exchange(waiting, std::nullopt));
  }

  // Throttles uploads during training. If training waits for the save, it does not need the network itself.
  void AwaitTurn(const PendingSave& save, int64_t bytes, const std::function<void()>& held_back) {
    MutexLock lock(mutex);
    if (waiting_callers > 0) return;
    const SteadyTime turn = clock.Steady() + turns.Take(clock.Steady(), static_cast<double>(bytes));
    while (!save.stop.stop_requested() && clock.Steady() < turn) {
      const auto left = std::chrono::ceil<Milliseconds>(turn - clock.Steady());
      if (changed.wait_for(lock, save.stop.get_token(), std::min(left, kBetweenSigns),
                           [this]() LOCKSTEP_REQUIRES(mutex) { return waiting_callers > 0; }))
        return;
      lock.unlock();
      held_back();
      lock.lock();
    }
  }

  // Checks first what the listing alone can show.
  Result<void> LoadOne(const StoredStep& stored, const Manifest& manifest, const Load& load) const {
    const std::vector<std::string> missing = MissingFrom(stored, manifest);
    if (!missing.empty())
      return Error{ErrorCode::kDataLoss, missing.front()}.WithContext(
          store->UriOf(FolderOfStep(manifest.step)));
    return load(manifest);
  }
};

Result<std::unique_ptr<Checkpointer>> Checkpointer::Open(const api::CheckpointSpec& spec,
                                                         const protocol::JobIdentity& job,
                                                         const Json& training) {
  LOCKSTEP_TRY(auto store, OpenObjectStore(spec.uri));
  return std::make_unique<Checkpointer>(spec, job, training, std::move(store));
}

Checkpointer::Checkpointer(const api::CheckpointSpec& spec, const protocol::JobIdentity& job,
                           const Json& training, std::unique_ptr<ObjectStore> store)
    : state_(std::unique_ptr<State>(
          new State{.spec = spec, .job = job, .training = training, .store = std::move(store)})) {
  state_->thread = std::jthread([state = state_.get()](std::stop_token stop) { state->Run(stop); });
}

Checkpointer::~Checkpointer() = default;

void Checkpointer::Copy(const Snapshot& snapshot, std::shared_ptr<ShardExchange> exchange) {
  LOCKSTEP_CHECK(snapshot.world == 1 || exchange != nullptr, "a save of several ranks needs a ShardExchange");
  const bool again = snapshot.round == state_->last_round && snapshot.step == state_->last_step;
  state_->attempt = again ? state_->attempt + 1 : 0;
  state_->last_round = snapshot.round;
  state_->last_step = snapshot.step;
  state_->copied.reset();
  state_->copied = PendingSave{.place = {snapshot.step,
                                         snapshot.round,
                                         snapshot.rank,
                                         snapshot.world,
                                         {},
                                         snapshot.evaluations,
                                         snapshot.history,
                                         snapshot.epoch},
                               .share = CopyOfShare(snapshot, state_->TakeSpare().get()),
                               .exchange = std::move(exchange),
                               .started = state_->clock.Steady(),
                               .attempt = state_->attempt,
                               .stop = {}};
}

void Checkpointer::Begin() {
  LOCKSTEP_CHECK(state_->copied.has_value(), "there is nothing to store");
  const MutexLock lock(state_->mutex);
  state_->waiting = std::exchange(state_->copied, std::nullopt);
  state_->changed.notify_all();
}

void Checkpointer::Forget() { state_->copied.reset(); }

Ownership& Checkpointer::ownership() { return state_->ownership; }

void Checkpointer::Abandon() { state_->Abandon(); }

Result<void> Checkpointer::Wait(std::chrono::milliseconds limit) {
  MutexLock lock(state_->mutex);
  ++state_->waiting_callers;
  state_->changed.notify_all();
  const bool idle = state_->changed.wait_for(lock, limit, [this]() LOCKSTEP_REQUIRES(state_->mutex) {
    return !state_->busy && !state_->waiting && state_->dropped.empty();
  });
  --state_->waiting_callers;
  return idle ? Result<void>()
              : Error{ErrorCode::kDeadlineExceeded,
                      "the checkpoint was not stored within " + std::to_string(limit.count()) + " ms"};
}

int64_t Checkpointer::progress() const { return state_->writer.progress(); }

std::vector<SaveOutcome> Checkpointer::TakeOutcomes() {
  const MutexLock lock(state_->mutex);
  return std::exchange(state_->outcomes, {});
}

Result<Manifest> Checkpointer::Find(int64_t step) { return ReadManifest(*state_->store, step); }

Result<int64_t> Checkpointer::Read(const Manifest& manifest, const std::vector<WantedPart>& wanted) {
  return ReadParts(*state_->store, manifest, wanted);
}

std::string Checkpointer::UriOf(int64_t step) const { return state_->store->UriOf(FolderOfStep(step)); }

Result<std::optional<Manifest>> Checkpointer::LoadFirst(const std::function<bool(const Manifest&)>& wanted,
                                                        const Load& load) {
  std::set<int64_t> passed_over;
  while (true) {
    LOCKSTEP_TRY(const std::vector<StoredStep> steps, ListSteps(*state_->store));
    bool has_damaged = false;
    for (const StoredStep& stored : steps) {
      if (!stored.has_manifest || passed_over.contains(stored.step)) continue;
      const auto manifest = Find(stored.step);
      if (manifest.ok() && !wanted(*manifest)) continue;
      const auto loaded =
          manifest.ok() ? state_->LoadOne(stored, *manifest, load) : Result<void>(manifest.error());
      if (loaded.ok()) return std::optional<Manifest>(*manifest);
      // If the store is away, continuing without its newest checkpoint would lose work.
      if (!IsDamage(loaded.error())) return loaded.error();
      LOCKSTEP_TRY(PassOver(stored.step, loaded.error()));
      passed_over.insert(stored.step);
      has_damaged = true;
      break;
    }
    // Another process of this job that is about to leave may have stored a newer checkpoint, and removed this
    // one.
    if (!has_damaged) return std::optional<Manifest>();
  }
}

// A checkpoint that no longer exists was removed, and is not damaged.
Result<void> Checkpointer::PassOver(int64_t step, const Error& damage) {
  const auto manifest = Find(step);
  if (!manifest.ok() && !IsDamage(manifest.error())) return manifest.error();
  if (manifest.ok() || manifest.error().code != ErrorCode::kNotFound)
    state_->damaged.push_back({step, damage.message});
  return {};
}

std::vector<protocol::CheckpointDamaged> Checkpointer::TakeDamaged() {
  return std::exchange(state_->damaged, {});
}

Result<void> Checkpointer::Settle(std::chrono::milliseconds patience) {
  if (Wait(patience).ok()) return {};
  Abandon();
  return Wait(kLastRequest).WithContext("an abandoned save");
}

Result<std::optional<Manifest>> Checkpointer::Resume(const Load& load, std::chrono::milliseconds patience) {
  LOCKSTEP_TRY(Settle(patience));
  LOCKSTEP_TRY(std::optional<Manifest> found, FindToResume(load));
  if (found && !state_->CountsItsEvaluations(*found)) found->evaluations = {};
  return found;
}

Result<std::optional<Manifest>> Checkpointer::FindToResume(const Load& load) {
  const auto is_own = [this](const Manifest& found) { return found.job_uid == state_->job.uid; };
  LOCKSTEP_TRY(auto own, LoadFirst(is_own, load));
  if (own) return own;
  switch (state_->spec.resume.mode) {
    case api::ResumeMode::kNever: return std::optional<Manifest>();
    case api::ResumeMode::kAuto:
      return LoadFirst([&](const Manifest& found) { return !is_own(found); }, load);
    case api::ResumeMode::kStep: break;
  }
  auto loaded = LoadExactly(state_->spec.resume.step, load).WithContext("spec.checkpoint.resume");
  if (!loaded.ok()) return loaded.error();
  return std::optional<Manifest>(std::move(loaded).value());
}

Result<Manifest> Checkpointer::LoadExactly(int64_t step, const Load& load) {
  LOCKSTEP_TRY(Manifest manifest, Find(step));
  LOCKSTEP_TRY(const std::vector<StoredStep> steps, ListSteps(*state_->store));
  const auto stored =
      std::find_if(steps.begin(), steps.end(), [&](const StoredStep& each) { return each.step == step; });
  LOCKSTEP_TRY(state_->LoadOne(stored == steps.end() ? StoredStep{.step = step} : *stored, manifest, load));
  return manifest;
}

bool Checkpointer::TakesOnlyWeightsOf(const Manifest& manifest) const {
  return state_->spec.restore == api::RestoredPart::kWeights && manifest.job_uid != state_->job.uid;
}

}  // namespace lockstep::checkpoint

#include "runtime/common/rendezvous/service.h"

#include <map>
#include <optional>
#include <utility>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/protocol/fields.h"
#include "runtime/common/rendezvous/job_entry.h"

namespace lockstep::rendezvous {
namespace {

using protocol::JobIdentity;

std::string BearerToken(const http::ServerRequest& request) {
  static constexpr std::string_view kPrefix = "Bearer ";
  const auto found = request.headers.find("authorization");
  if (found == request.headers.end() || !found->second.starts_with(kPrefix)) return "";
  return found->second.substr(kPrefix.size());
}

// Without an event, though Tick is one every 50 ms: this process was stopped, or starved.
constexpr std::chrono::seconds kOwnPause{2};

http::Response ErrorReply(int status, const std::string& message) {
  return http::JsonResponse(status, DumpJson({{"error", message}}));
}

void SendAll(Outbox& outbox) {
  for (auto& [respond, response] : outbox) respond(std::move(response));
}

}  // namespace

struct RendezvousService::State {
  const Clock& clock;
  Authorizer authorize;
  std::function<void(const JobIdentity&)> on_change;
  mutable Mutex mutex;
  std::map<std::string, JobEntry> jobs LOCKSTEP_GUARDED_BY(mutex);  // by uid

  std::optional<SteadyTime> last_event LOCKSTEP_GUARDED_BY(mutex);

  [[nodiscard]] Moment Now() const { return {clock.Steady(), clock.Now()}; }

  // Of all jobs, before any looks at its time-outs.
  void ForgiveOwnPause(SteadyTime now) LOCKSTEP_REQUIRES(mutex) {
    const SteadyTime::duration gap = now - std::exchange(last_event, now).value_or(now);
    if (gap < kOwnPause) return;
    for (auto& [uid, entry] : jobs) entry.Forgive(gap);
  }

  // Runs `event` on the job's entry, moves it forward, then answers and notifies with the lock released.
  // False where the job is unknown.
  template <typename Event>
  bool Apply(const std::string& uid, Event event) {
    Outbox outbox;
    JobIdentity changed;
    {
      const MutexLock lock(mutex);
      const Moment now = Now();
      ForgiveOwnPause(now.steady);
      const auto found = jobs.find(uid);
      if (found == jobs.end()) return false;
      event(found->second, now, outbox);
      if (found->second.Advance(now, outbox)) changed = found->second.job();
    }
    SendAll(outbox);
    if (!changed.uid.empty()) on_change(changed);
    return true;
  }

  // Parses, authorizes, applies.
  template <typename Message>
  void Serve(const http::ServerRequest& request, http::Responder respond,
             void (JobEntry::*apply)(const Message&, http::Responder, Moment, Outbox&)) {
    const auto json = ParseJson(request.body);
    if (!json.ok()) return respond(ErrorReply(400, json.error().message));
    auto message = protocol::MessageFromJson<Message>(*json);
    if (!message.ok()) return respond(ErrorReply(400, message.error().message));
    const JobIdentity job = message->job;
    const protocol::Member member = message->member;
    authorize(BearerToken(request), job, member,
              [this, apply, respond, message = std::move(message).value()](Result<void> allowed) {
                if (!allowed.ok()) {
                  const bool unknown = allowed.error().code == ErrorCode::kUnauthorized;
                  return respond(ErrorReply(unknown ? 401 : 403, allowed.error().message));
                }
                // This may be a thread of the authorizer.
                const auto applied = Guarded([&] { ApplyMessage(message, respond, apply); });
                if (applied.ok()) return;
                log::Error("message failed", {{"job", message.job.name}, {"error", applied.error().message}});
                respond(ErrorReply(500, "internal error"));
              });
  }

  template <typename Message>
  void ApplyMessage(const Message& message, const http::Responder& respond,
                    void (JobEntry::*apply)(const Message&, http::Responder, Moment, Outbox&)) {
    const bool known = Apply(message.job.uid, [&](JobEntry& entry, Moment now, Outbox& outbox) {
      (entry.*apply)(message, respond, now, outbox);
    });
    if (!known) respond(ErrorReply(404, "this job has no rendezvous yet: ask again"));
  }
};

RendezvousService::RendezvousService(const Clock& clock, Authorizer authorize,
                                     std::function<void(const JobIdentity&)> on_change)
    : state_(new State{clock, std::move(authorize), std::move(on_change), {}, {}}) {}

RendezvousService::~RendezvousService() = default;

void RendezvousService::Configure(const JobIdentity& job, const JobSettings& settings) {
  {
    const MutexLock lock(state_->mutex);
    state_->jobs.try_emplace(job.uid, job, settings);
  }
  state_->Apply(job.uid, [&](JobEntry& entry, Moment, Outbox&) { entry.Configure(settings); });
}

void RendezvousService::Forget(const JobIdentity& job) {
  const MutexLock lock(state_->mutex);
  state_->jobs.erase(job.uid);
}

RendezvousView RendezvousService::View(const JobIdentity& job) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->jobs.find(job.uid);
  return found == state_->jobs.end() ? RendezvousView{} : found->second.View();
}

void RendezvousService::PodGone(const JobIdentity& job, const PodEnd& end) {
  state_->Apply(job.uid,
                [&](JobEntry& entry, Moment now, Outbox& outbox) { entry.PodGone(end, now, outbox); });
}

void RendezvousService::Handle(http::ServerRequest request, http::Responder respond) {
  if (request.method != "POST") return respond(ErrorReply(405, "POST only"));
  if (request.path == protocol::kJoinPath) return state_->Serve(request, respond, &JobEntry::Join);
  if (request.path == protocol::kWatchPath) return state_->Serve(request, respond, &JobEntry::Watch);
  if (request.path == protocol::kHeartbeatPath) return state_->Serve(request, respond, &JobEntry::Heartbeat);
  if (request.path == protocol::kBrokenPath) return state_->Serve(request, respond, &JobEntry::Broken);
  if (request.path == protocol::kLeavePath) return state_->Serve(request, respond, &JobEntry::Leave);
  respond(ErrorReply(404, "no such path: " + request.path));
}

void RendezvousService::Tick() {
  std::vector<std::string> uids;
  {
    const MutexLock lock(state_->mutex);
    for (const auto& [uid, entry] : state_->jobs) uids.push_back(uid);
  }
  for (const std::string& uid : uids) {
    const auto moved = Guarded([&] { state_->Apply(uid, [](JobEntry&, Moment, Outbox&) {}); });
    if (!moved.ok()) log::Error("tick failed", {{"job_uid", uid}, {"error", moved.error().message}});
  }
}

}  // namespace lockstep::rendezvous

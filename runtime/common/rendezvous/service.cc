#include "runtime/common/rendezvous/service.h"

#include <map>
#include <optional>
#include <utility>

#include "runtime/common/base/fields.h"
#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/once_per_key.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/rendezvous/job_entry.h"

namespace lockstep::rendezvous {
namespace {

using protocol::JobIdentity;

// A gap between events this long means that this process was stopped or starved, because Tick runs every 50
// ms.
constexpr std::chrono::seconds kOwnPause{2};
// Length of a rejected message's field in the log.
constexpr std::size_t kLongestField = 300;

int StatusOfRefusal(ErrorCode code) {
  if (code == ErrorCode::kUnauthorized) return 401;
  return code == ErrorCode::kForbidden ? 403 : 503;
}

http::Response ErrorReply(int status, const std::string& message) {
  return http::JsonResponse(status, DumpJson({{"error", message}}));
}

// The outcome of a message or an event.
enum class Delivery {
  kDone,
  kUnknownJob,
  kOtherJob,  // the job of that uid has another namespace or name
};

void SendAll(Outbox& outbox) {
  for (auto& [respond, response] : outbox) respond(std::move(response));
}

}  // namespace

struct RendezvousService::State {
  const Clock& clock;
  Authorizer authorize;
  std::function<void(const JobIdentity&)> on_change;
  HostLookup host_of;
  mutable Mutex mutex;
  std::map<std::string, JobEntry> jobs LOCKSTEP_GUARDED_BY(mutex);  // by uid

  std::optional<SteadyTime> last_event LOCKSTEP_GUARDED_BY(mutex);
  OncePerKey logged_refusals LOCKSTEP_GUARDED_BY(mutex);

  [[nodiscard]] Moment Now() const { return {clock.Steady(), clock.Now()}; }

  // Extends the time-outs of all jobs before any of them is checked.
  void ExtendTimeoutsByOwnPause(SteadyTime now) LOCKSTEP_REQUIRES(mutex) {
    const SteadyTime::duration gap = now - std::exchange(last_event, now).value_or(now);
    if (gap < kOwnPause) return;
    for (auto& [uid, entry] : jobs) entry.ExtendTimeouts(gap);
  }

  // Calls `event` on the job's entry, applies time-outs, then answers and notifies with the lock released.
  // The uid alone does not identify the job: a sender can write any uid into a message, but its namespace is
  // the authorized one.
  template <typename Event>
  Delivery Apply(const JobIdentity& job, Event event) {
    Outbox outbox;
    bool is_changed = false;
    {
      const MutexLock lock(mutex);
      const Moment now = Now();
      ExtendTimeoutsByOwnPause(now.steady);
      const auto found = jobs.find(job.uid);
      if (found == jobs.end()) return Delivery::kUnknownJob;
      if (found->second.job() != job) return Delivery::kOtherJob;
      event(found->second, now, outbox);
      is_changed = found->second.Advance(now, outbox);
    }
    SendAll(outbox);
    if (is_changed) on_change(job);
    return Delivery::kDone;
  }

  // One line for each sender and kind of message, however often it is repeated.
  template <typename Message>
  http::Response Refuse(const std::string& path, const Message& message, const std::string& why) {
    bool is_first = false;
    {
      const MutexLock lock(mutex);
      is_first = logged_refusals.IsFirst(path + " " + message.member.pod_uid, clock.Steady());
    }
    if (is_first) {
      log::Warning("a message to the rendezvous was refused",
                   {{"path", path},
                    {"job", Truncate(message.job.name_space + "/" + message.job.name, kLongestField)},
                    {"job_uid", Truncate(message.job.uid, kLongestField)},
                    {"pod", Truncate(message.member.pod, kLongestField)},
                    {"pod_uid", Truncate(message.member.pod_uid, kLongestField)},
                    {"reason", Truncate(why, kLongestField)}});
    }
    return ErrorReply(403, why);
  }

  template <typename Message>
  using Method = void (JobEntry::*)(const Message&, http::Responder, Moment, Outbox&);

  // nullopt if this is the job's host. The answer contains nothing that needs authorization.
  [[nodiscard]] std::optional<http::Response> Redirect(const JobIdentity& job) const {
    const HostedAt host = host_of ? host_of(job) : HostedAt{};
    if (host.is_here) return std::nullopt;
    if (host.address.empty()) return ErrorReply(503, "no replica hosts this job yet");
    return http::JsonResponse(protocol::kMisdirected, DumpJson({{"error", "another replica hosts this job"},
                                                                {protocol::kHostField, host.address}}));
  }

  // Parses, authorizes, delivers.
  template <typename Message>
  void Serve(const http::ServerRequest& request, http::Responder respond, Method<Message> method) {
    const auto json = ParseJson(request.body);
    if (!json.ok()) return respond(ErrorReply(400, json.error().message));
    auto message = MessageFromJson<Message>(*json);
    if (!message.ok()) return respond(ErrorReply(400, message.error().message));
    if (auto elsewhere = Redirect(message->job)) return respond(std::move(*elsewhere));
    const Claim claim{http::BearerTokenOf(request), request.peer, message->job, message->member};
    authorize(claim, [this, method, respond, path = request.path, trust = request.trust,
                      message = std::move(message).value()](const Result<void>& allowed) {
      if (allowed.ok()) trust();
      // This may be a thread of the authorizer.
      const auto delivered = Guarded([&] { Deliver(path, message, allowed, respond, method); });
      if (delivered.ok()) return;
      log::Error("message failed", {{"job", message.job.name}, {"error", delivered.error().message}});
      respond(ErrorReply(500, "internal error"));
    });
  }

  template <typename Message>
  void Deliver(const std::string& path, const Message& message, const Result<void>& allowed,
               const http::Responder& respond, Method<Message> method) {
    if (!allowed.ok()) {
      const int status = StatusOfRefusal(allowed.error().code);
      if (status != 403) return respond(ErrorReply(status, allowed.error().message));
      return respond(Refuse(path, message, allowed.error().message));
    }
    const Delivery delivery = Apply(message.job, [&](JobEntry& entry, Moment now, Outbox& outbox) {
      (entry.*method)(message, respond, now, outbox);
    });
    if (delivery == Delivery::kUnknownJob)
      respond(ErrorReply(404, "this job has no rendezvous yet: ask again"));
    if (delivery == Delivery::kOtherJob) {
      const JobIdentity& job = message.job;
      respond(Refuse(path, message, "the job of this uid is not " + job.name_space + "/" + job.name));
    }
  }
};

RendezvousService::RendezvousService(const Clock& clock, Authorizer authorize,
                                     std::function<void(const JobIdentity&)> on_change, HostLookup host_of)
    : state_(
          new State{clock, std::move(authorize), std::move(on_change), std::move(host_of), {}, {}, {}, {}}) {}

RendezvousService::~RendezvousService() = default;

void RendezvousService::Configure(const JobIdentity& job, const JobSettings& settings) {
  {
    const MutexLock lock(state_->mutex);
    state_->jobs.try_emplace(job.uid, job, settings, state_->Now().steady);
  }
  state_->Apply(job, [&](JobEntry& entry, Moment, Outbox&) { entry.Configure(settings); });
}

void RendezvousService::Forget(const JobIdentity& job) {
  const MutexLock lock(state_->mutex);
  const auto found = state_->jobs.find(job.uid);
  if (found != state_->jobs.end() && found->second.job() == job) state_->jobs.erase(found);
}

RendezvousView RendezvousService::View(const JobIdentity& job) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->jobs.find(job.uid);
  if (found == state_->jobs.end() || found->second.job() != job) return {};
  RendezvousView view = found->second.View();
  view.listening = state_->Now().steady - found->second.began();
  return view;
}

void RendezvousService::PodGone(const JobIdentity& job, const PodEnd& end) {
  state_->Apply(job, [&](JobEntry& entry, Moment now, Outbox& outbox) { entry.PodGone(end, now, outbox); });
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
  std::vector<JobIdentity> jobs;
  {
    const MutexLock lock(state_->mutex);
    for (const auto& [uid, entry] : state_->jobs) jobs.push_back(entry.job());
  }
  for (const JobIdentity& job : jobs) {
    const auto moved = Guarded([&] { state_->Apply(job, [](JobEntry&, Moment, Outbox&) {}); });
    if (!moved.ok()) log::Error("tick failed", {{"job", job.name}, {"error", moved.error().message}});
  }
}

}  // namespace lockstep::rendezvous

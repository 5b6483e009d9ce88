#include "runtime/launch/supervisor/formation_host.h"

#include <algorithm>
#include <utility>

#include "runtime/common/base/fields.h"
#include "runtime/common/base/strings.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr auto kLongPoll =
    std::chrono::duration_cast<SteadyTime::duration>(Seconds(protocol::kLongPollSeconds));

template <typename Message>
http::Response Reply(const Message& message) {
  return http::JsonResponse(200, DumpJson(MessageToJson(message)));
}

http::Response Refusal(int status, const std::string& message) {
  return http::JsonResponse(status, DumpJson({{"error", message}}));
}

template <typename Message>
Result<Message> Parse(const std::string& body) {
  LOCKSTEP_TRY(const Json json, ParseJson(body));
  return MessageFromJson<Message>(json);
}

protocol::WatchAnswer Over() { return {.over = true, .reason = "a member wants the round formed again"}; }

}  // namespace

FormationHost::FormationHost(const Clock& clock) : clock_(clock), key_(RandomHex(kKeyBytes)) {}

void FormationHost::Host(int64_t round, int world) {
  std::map<int, Pending> pending;
  std::vector<Watcher> watchers;
  {
    const MutexLock lock(mutex_);
    round_ = formation_ = round;
    world_ = world;
    formed_.reset();
    pending.swap(pending_);
    watchers.swap(watchers_);
  }
  for (auto& [rank, waiting] : pending) waiting.respond(Reply(protocol::FormAnswer{}));
  for (Watcher& watcher : watchers) watcher.respond(Reply(Over()));
}

void FormationHost::Handle(const http::ServerRequest& request, const http::Responder& respond) {
  const auto token = request.headers.find("authorization");
  if (token == request.headers.end() || token->second != "Bearer " + key_)
    return respond(Refusal(401, "wrong key for this round"));
  request.trust();
  Outbox outbox;
  if (request.path == protocol::kFormPath) {
    const auto message = Parse<protocol::FormRequest>(request.body);
    if (!message.ok()) return respond(Refusal(400, message.error().message));
    const MutexLock lock(mutex_);
    Form(*message, respond, outbox);
  } else {
    const auto message = Parse<protocol::FormationWatch>(request.body);
    if (!message.ok()) return respond(Refusal(400, message.error().message));
    const MutexLock lock(mutex_);
    Watch(*message, respond, outbox);
  }
  for (auto& [answer, response] : outbox) answer(std::move(response));
}

void FormationHost::Form(const protocol::FormRequest& request, const http::Responder& respond,
                         Outbox& outbox) {
  const bool is_member = request.first_rank + request.nproc <= world_;
  if (round_ == 0 || request.round != round_ || request.formation > formation_ || !is_member)
    return outbox.emplace_back(respond, Refusal(409, "this pod forms another round")), void();
  // The answer to the member's last request was lost.
  if (formed_.has_value() && pending_.empty() && request.formation < formation_)
    return outbox.emplace_back(respond, Reply(*formed_)), void();
  Pending& pending = pending_[request.first_rank];
  if (pending.respond) outbox.emplace_back(std::move(pending.respond), Reply(protocol::FormAnswer{}));
  pending = {request, respond, clock_.Steady() + kLongPoll};
  EndWatches(outbox);
  CloseIfComplete(outbox);
}

void FormationHost::CloseIfComplete(Outbox& outbox) {
  int ranks = 0;
  int64_t newest_step = -1;
  for (const auto& [first_rank, pending] : pending_) {
    if (first_rank != ranks) return;
    ranks += pending.request.nproc;
    newest_step = std::max(newest_step, pending.request.step);
  }
  if (ranks != world_) return;
  formed_ = protocol::FormAnswer{.formed = true,
                                 .formation = ++formation_,
                                 .store_port = pending_.begin()->second.request.store_port,
                                 .newest_step = newest_step};
  for (auto& [first_rank, pending] : pending_)
    outbox.emplace_back(std::move(pending.respond), Reply(*formed_));
  pending_.clear();
}

void FormationHost::Watch(const protocol::FormationWatch& request, const http::Responder& respond,
                          Outbox& outbox) {
  if (round_ == 0 || request.round != round_)
    return outbox.emplace_back(respond, Refusal(409, "this pod forms another round")), void();
  if (!pending_.empty() || request.formation < formation_)
    return outbox.emplace_back(respond, Reply(Over())), void();
  // A watch does not identify its member. Twice the world, because one answer per member may have been lost.
  if (watchers_.size() >= 2 * static_cast<std::size_t>(world_)) {
    outbox.emplace_back(std::move(watchers_.front().respond), Reply(protocol::WatchAnswer{}));
    watchers_.erase(watchers_.begin());
  }
  watchers_.push_back({respond, clock_.Steady() + kLongPoll});
}

void FormationHost::EndWatches(Outbox& outbox) {
  for (Watcher& watcher : watchers_) outbox.emplace_back(std::move(watcher.respond), Reply(Over()));
  watchers_.clear();
}

void FormationHost::Tick() {
  Outbox outbox;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.Steady();
    std::erase_if(pending_, [&](auto& entry) {
      if (now < entry.second.deadline) return false;
      outbox.emplace_back(std::move(entry.second.respond), Reply(protocol::FormAnswer{}));
      return true;
    });
    std::erase_if(watchers_, [&](Watcher& watcher) {
      if (now < watcher.deadline) return false;
      outbox.emplace_back(std::move(watcher.respond), Reply(protocol::WatchAnswer{}));
      return true;
    });
  }
  for (auto& [answer, response] : outbox) answer(std::move(response));
}

}  // namespace lockstep::launch

#include "runtime/common/rendezvous/job_entry.h"

#include <algorithm>
#include <optional>

#include "runtime/common/base/fields.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/rendezvous/facts.h"
#include "runtime/common/rendezvous/spec_check.h"

namespace lockstep::rendezvous {
namespace {

// All long polls are checked this often, not at each of thousands of events.
constexpr std::chrono::milliseconds kSweepInterval{100};
constexpr auto kLongPoll =
    std::chrono::duration_cast<SteadyTime::duration>(Seconds(protocol::kLongPollSeconds));

template <typename Message>
http::Response Reply(const Message& message) {
  return http::JsonResponse(200, DumpJson(MessageToJson(message)));
}

http::Response EvictedReply(const protocol::Member& member) {
  return http::JsonResponse(
      410, DumpJson({{"error", member.pod + " was replaced or deleted; this incarnation must exit"}}));
}

// Of a program, only the pod of rank 0 may know more than the number of the step.
protocol::Progress WithDetailsOf(const protocol::Progress& before, protocol::Progress progress) {
  if (!progress.HasOnlySteps() || before.HasOnlySteps()) return progress;
  protocol::Progress merged = before;
  merged.step = progress.step;
  merged.steps_under_way = progress.steps_under_way;
  merged.steps_total = progress.steps_total;
  return merged;
}

}  // namespace

JobEntry::JobEntry(protocol::JobIdentity job, const JobSettings& settings, SteadyTime began)
    : job_(std::move(job)), began_(began), round_(settings) {
  Configure(settings);
}

void JobEntry::Configure(const JobSettings& settings) {
  round_.SetSettings(settings);
  waits_for_ = settings.waits_for;
  departures_ = settings.departures;
  if (!settings.straggler.has_value()) {
    stragglers_.reset();
  } else if (!stragglers_.has_value() || stragglers_->settings() != *settings.straggler) {
    stragglers_.emplace(*settings.straggler);
  }
  RequestSave(settings.save_request);
  RequestProfile({settings.profile_request, settings.profile_steps});
}

void JobEntry::RequestSave(const std::string& request) {
  if (std::exchange(save_request_, request) == request) return;
  wanted_save_.reset();
  if (!save_request_.empty()) wanted_save_ = WantedSave{save_request_, std::nullopt};
}

void JobEntry::RequestProfile(const protocol::ProfileWanted& wanted) {
  if (std::exchange(profile_request_, wanted.request) == wanted.request) return;
  wanted_profile_.reset();
  if (!wanted.request.empty()) wanted_profile_ = WantedProfile{wanted, agreed_profile_};
}

template <typename Message>
bool JobEntry::Refuses(const Message& message, http::Responder& respond, Outbox& outbox) const {
  if (round_.Check(message.member) == Admission::kEvicted) {
    outbox.emplace_back(std::move(respond), EvictedReply(message.member));
    return true;
  }
  KnownOfJob known{.settings = round_.settings(), .newest_round = round_.newest_number()};
  if constexpr (requires { IsNewcomer(message); }) known.is_newcomer = IsNewcomer(message);
  const Result<void> checked = CheckMessage(message, known);
  if (checked.ok()) return false;
  outbox.emplace_back(std::move(respond),
                      http::JsonResponse(400, DumpJson({{"error", checked.error().message}})));
  return true;
}

bool JobEntry::IsNewcomer(const protocol::JoinRequest& request) const {
  return !round_.Contains(request.member);
}

bool JobEntry::IsNewcomer(const protocol::Heartbeat& heartbeat) const { return round_.CanAdopt(heartbeat); }

void JobEntry::Join(const protocol::JoinRequest& request, http::Responder respond, Moment now,
                    Outbox& outbox) {
  if (Refuses(request, respond, outbox)) return;
  if (keeps_state_ && request.can_start_first) {
    outbox.emplace_back(std::move(respond), Reply(protocol::JoinAnswer{.start_first = true}));
    return;
  }
  (void)round_.Join(request, now.steady);
  TakeHeldStep(request.step);
  PendingJoin& pending = joins_[request.member.slot];
  if (pending.respond) {
    const bool same = pending.member.incarnation == request.member.incarnation;
    outbox.emplace_back(std::move(pending.respond),
                        same ? Reply(protocol::JoinAnswer{}) : EvictedReply(pending.member));
  }
  pending = {request.member, std::move(respond), now.steady + kLongPoll};
  if (AnswerFor(request.member).state == protocol::JoinState::kWaiting) return;
  outbox.emplace_back(std::move(pending.respond), Reply(AnswerFor(request.member)));
  joins_.erase(request.member.slot);
}

void JobEntry::Watch(const protocol::WatchRequest& request, http::Responder respond, Moment now,
                     Outbox& outbox) {
  if (Refuses(request, respond, outbox)) return;
  if (IsOver(request.round)) {
    outbox.emplace_back(std::move(respond), Reply(AnswerFor(request.round)));
    return;
  }
  PendingWatch& pending = watches_[request.member.pod_uid];
  if (pending.respond) outbox.emplace_back(std::move(pending.respond), Reply(protocol::WatchAnswer{}));
  pending = {request.round, std::move(respond), now.steady + kLongPoll};
}

void JobEntry::Heartbeat(const protocol::Heartbeat& heartbeat, http::Responder respond, Moment now,
                         Outbox& outbox) {
  if (Refuses(heartbeat, respond, outbox)) return;
  (void)round_.Heartbeat(heartbeat, now.steady);
  TakeProgress(heartbeat, now);
  const bool has_place = round_.FirstRankOf(heartbeat.member.slot) == heartbeat.first_rank;
  if (stragglers_.has_value() && has_place && stragglers_->Update(heartbeat.round, heartbeat.ranks))
    has_update_ = true;
  if (has_place && heartbeat.first_rank == 0) scaling_.Take(heartbeat.round, heartbeat.progress);
  protocol::WatchAnswer answer = AnswerFor(heartbeat.round);
  answer.stragglers = StragglersOf(heartbeat);
  if (wanted_save_.has_value()) answer.save = wanted_save_->request;
  if (wanted_profile_.has_value()) answer.profile = wanted_profile_->wanted;
  if (const auto departs = departures_.find(heartbeat.member.slot); departs != departures_.end())
    answer.departure = departs->second;
  outbox.emplace_back(std::move(respond), Reply(answer));
}

std::vector<protocol::Straggler> JobEntry::StragglersOf(const protocol::Heartbeat& heartbeat) const {
  std::vector<protocol::Straggler> mine;
  if (!stragglers_.has_value() || spared_.contains(heartbeat.member.slot)) return mine;
  for (const auto& [rank, slowness] : stragglers_->found()) {
    const bool is_mine = rank >= heartbeat.first_rank && rank < heartbeat.first_rank + heartbeat.nproc;
    if (is_mine && heartbeat.round == stragglers_->round()) mine.push_back({rank, slowness});
  }
  return mine;
}

void JobEntry::Broken(const protocol::BrokenReport& report, http::Responder respond, Moment now,
                      Outbox& outbox) {
  if (Refuses(report, respond, outbox)) return;
  (void)round_.Broken(report, now.steady);
  outbox.emplace_back(std::move(respond), http::JsonResponse(200, "{}"));
}

void JobEntry::Leave(const protocol::LeaveRequest& request, http::Responder respond, Moment now,
                     Outbox& outbox) {
  if (Refuses(request, respond, outbox)) return;
  if (request.failure.cause == protocol::FailureCause::kStraggler) spared_.insert(request.member.slot);
  (void)round_.Leave(request, now.steady);
  outbox.emplace_back(std::move(respond), http::JsonResponse(200, "{}"));
}

void JobEntry::PodGone(const PodEnd& end, Moment now, Outbox& outbox) {
  round_.PodGone(end, now.steady);
  const auto slot = round_.SlotOf(end.pod_uid);
  const auto pending = slot.has_value() ? joins_.find(*slot) : joins_.end();
  if (pending == joins_.end()) return;
  outbox.emplace_back(std::move(pending->second.respond), EvictedReply(pending->second.member));
  joins_.erase(pending);
}

bool JobEntry::Advance(Moment now, Outbox& outbox) {
  round_.Tick(now.steady);
  const auto& running = round_.running();
  if (stragglers_.has_value() && running.has_value())
    stragglers_->BeginRound(running->number, running->world);
  const bool moved = std::exchange(seen_revision_, round_.revision()) != round_.revision();
  if (moved) RecordChanges(now);
  const Rounds rounds = CurrentRounds();
  if (rounds.running != answered_.running) view_.save_failed.reset();  // a round may begin with an older step
  if (std::exchange(answered_, rounds) != rounds || now.steady >= next_sweep_) {
    AnswerJoins(now.steady, outbox);
    AnswerWatches(now.steady, outbox);
    next_sweep_ = now.steady + kSweepInterval;
  }
  return std::exchange(has_update_, false) || moved;
}

JobEntry::Rounds JobEntry::CurrentRounds() const {
  const auto& running = round_.running();
  const auto& ending = round_.last_ending();
  return {.running = running.has_value() ? running->number : 0,
          .ended = ending.has_value() ? ending->round : 0,
          .completed = round_.completed()};
}

RendezvousView JobEntry::View() const {
  RendezvousView view = view_;
  view.responsive_pods = round_.ResponsivePods();
  view.round = round_.newest_number();
  view.completed = round_.completed();
  view.waiting = round_.waiting();
  view.store_outage = CurrentOutage();
  if (!round_.running().has_value()) return view;
  view.world_size = round_.running()->world;
  view.measured_steps = scaling_.MeasuredIn(round_.running()->number);
  for (const Peer& peer : round_.running()->peers) {
    view.members.push_back(peer.pod);
    if (!stragglers_.has_value()) continue;
    const auto& found = stragglers_->found();
    const auto end = found.lower_bound(peer.first_rank + peer.nproc);
    for (auto slow = found.lower_bound(peer.first_rank); slow != end; ++slow)
      view.stragglers.push_back({peer.pod, slow->first, slow->second});
  }
  return view;
}

protocol::JoinAnswer JobEntry::AnswerFor(const protocol::Member& member) const {
  if (round_.completed()) return {.state = protocol::JoinState::kCompleted};
  const std::optional<int> first_rank = round_.FirstRankOf(member.slot);
  if (!first_rank.has_value()) {
    const bool is_standby = round_.running().has_value();
    return {.state = protocol::JoinState::kWaiting,
            .standby = is_standby,
            .waits_for = is_standby ? "" : waits_for_};
  }
  const ClosedRound& round = *round_.running();
  return {.state = protocol::JoinState::kAssigned,
          .round = round.number,
          .world = round.world,
          .first_rank = *first_rank,
          .store_host = round.store_host,
          .store_port = round.store_port,
          .form_port = round.form_port,
          .form_key = round.form_key,
          .newest_step = round.newest_step,
          .reason = round.reason,
          .hosts = *first_rank == 0 ? round.hosts : std::vector<std::string>{},
          .previous_end = PreviousEnd()};
}

std::string JobEntry::PreviousEnd() const {
  // The text is sent to many members.
  constexpr std::size_t kLongest = 200;
  if (view_.changes.empty()) return "";
  const RoundChange& change = view_.changes.back();
  const std::string cause(change.cause ? NameOf(*change.cause) : "Scale");
  return Truncate(cause + ": " + change.reason, kLongest);
}

void JobEntry::AnswerJoins(SteadyTime now, Outbox& outbox) {
  std::erase_if(joins_, [&](const auto& entry) {
    const PendingJoin& pending = entry.second;
    const protocol::JoinAnswer answer = AnswerFor(pending.member);
    if (answer.state == protocol::JoinState::kWaiting && now < pending.deadline) return false;
    outbox.emplace_back(pending.respond, Reply(answer));
    return true;
  });
}

void JobEntry::AnswerWatches(SteadyTime now, Outbox& outbox) {
  std::map<int64_t, http::Response> replies;  // equal for all watchers of a round
  std::erase_if(watches_, [&](const auto& entry) {
    const PendingWatch& watch = entry.second;
    if (!IsOver(watch.round) && now < watch.deadline) return false;
    const auto [reply, is_new] = replies.try_emplace(watch.round);
    if (is_new) reply->second = Reply(AnswerFor(watch.round));
    outbox.emplace_back(watch.respond, reply->second);
    return true;
  });
}

bool JobEntry::IsOver(int64_t round) const {
  if (round_.completed()) return round_.dismisses();  // otherwise the others finish by themselves
  if (round_.running().has_value()) return round < round_.running()->number;
  return round_.last_ending().has_value() && round <= round_.last_ending()->round;
}

protocol::WatchAnswer JobEntry::AnswerFor(int64_t round) const {
  if (round == 0 || !IsOver(round)) return {};
  if (round_.dismisses()) return {.over = true, .reason = "the job is complete by its successPolicy"};
  const auto& ending = round_.last_ending();
  const bool known = ending.has_value() && ending->round == round;
  return {.over = true,
          .mode = known ? ending->mode : protocol::LeaveMode::kAbort,
          .reason = known ? ending->reason : "a newer round is running"};
}

void JobEntry::TakeProgress(const protocol::Heartbeat& heartbeat, Moment now) {
  const protocol::Progress& progress = heartbeat.progress;
  // The start of a program, which is no recovery of a job that has reported steps.
  const bool is_start = progress.IsStart() && view_.best_step > 0;
  if (!is_start && !unrecovered_.empty() && progress.round > unrecovered_.rbegin()->first)
    RecordRecovery(progress, now);
  const bool newer_round = !is_start && progress.round > view_.progress.round;
  has_update_ = has_update_ || newer_round;
  if (newer_round || (progress.round == view_.progress.round && progress.step > view_.progress.step)) {
    const bool was_behind = view_.progress.step < view_.best_step;
    view_.progress = newer_round ? progress : WithDetailsOf(view_.progress, progress);
    view_.best_step = std::max(view_.best_step, progress.step);
    view_.last_progress_time = now.wall;
    view_.step_time = StepTimeOf(heartbeat, now.wall);
    has_update_ = has_update_ || (was_behind && progress.step >= view_.best_step);
  } else if (progress.round == view_.progress.round && progress.step == view_.progress.step) {
    view_.progress.steps_under_way = std::max(view_.progress.steps_under_way, progress.steps_under_way);
    view_.step_time = std::min(view_.step_time, StepTimeOf(heartbeat, now.wall));
  }
  keeps_state_ = keeps_state_ || heartbeat.keeps_state;
  TakeWantedSave(heartbeat);
  TakeStoreOutage(heartbeat, now);
  TakeProfile(heartbeat);
  for (const protocol::Repair& repair : heartbeat.repairs)
    repaired_to_ = std::max(repaired_to_, repair.formation + 1);
  has_update_ = TakeFacts(heartbeat, now.wall, view_) || has_update_;
}

void JobEntry::TakeProfile(const protocol::Heartbeat& heartbeat) {
  const protocol::ProfileAgreed& agreed = heartbeat.profile;
  if (agreed.request.empty()) return;
  agreed_profile_ = agreed;
  const bool is_wanted = wanted_profile_.has_value() && wanted_profile_->wanted.request == agreed.request;
  if (is_wanted && wanted_profile_->before != agreed) wanted_profile_.reset();
}

void JobEntry::TakeWantedSave(const protocol::Heartbeat& heartbeat) {
  if (!wanted_save_.has_value()) return;
  // Only from a member that trains: others have no step.
  const bool trains = heartbeat.progress.round > 0 && heartbeat.progress.round == view_.progress.round;
  std::optional<int64_t>& from_step = wanted_save_->from_step;
  if (!from_step.has_value() && trains) from_step = view_.progress.step;
  const protocol::Saved& saved = heartbeat.checkpoint;
  if (from_step.has_value() && !saved.uri.empty() && saved.step >= *from_step) wanted_save_.reset();
}

void JobEntry::TakeStoreOutage(const protocol::Heartbeat& heartbeat, Moment now) {
  const protocol::StoreUnavailable& away = heartbeat.store_unavailable;
  if (away.waiting.empty()) {
    has_update_ = outages_.erase(heartbeat.member.slot) > 0 || has_update_;
    return;
  }
  const auto [outage, is_new] = outages_.try_emplace(
      heartbeat.member.slot, StoreOutage{.pod = heartbeat.member.pod, .since = now.wall});
  has_update_ = has_update_ || is_new || outage->second.waiting != away.waiting;
  outage->second.pod = heartbeat.member.pod;
  outage->second.waiting = away.waiting;
  outage->second.reason = away.reason;
}

// Among the members of the round; among all if there is none.
std::optional<StoreOutage> JobEntry::CurrentOutage() const {
  std::optional<StoreOutage> longest;
  for (const auto& [slot, outage] : outages_) {
    if (round_.running().has_value() && !round_.FirstRankOf(slot).has_value()) continue;
    if (!longest.has_value() || outage.since < longest->since) longest = outage;
  }
  return longest;
}

}  // namespace lockstep::rendezvous

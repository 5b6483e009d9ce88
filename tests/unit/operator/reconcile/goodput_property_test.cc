// Random schedules of faults against the goodput ledger: two members that measure their own training, a
// rendezvous service that receives their reports late or never, and reconcile passes whose writes may fail.
// In every schedule the productive seconds must be those in which steps were completed.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <functional>
#include <memory>

#include "operator/reconcile/goodput.h"
#include "operator/reconcile/plan.h"
#include "runtime/common/base/fields.h"
#include "runtime/common/rendezvous/job_entry.h"
#include "tests/support/job_world.h"

namespace lockstep::reconcile {
namespace {

using testing::JobWorld;

constexpr double kTick = 0.5;
constexpr double kHeartbeat = 1;
constexpr auto kRankDied = "rank process 0 was ended by signal 9";

class FaultyJob {
 public:
  FaultyJob() {
    world_.Running(0).Running(1);
    observed().job.status.goodput =
        api::GoodputStatus{.since = observed().now, .activity = api::Activity::kRendezvous};
    BeginService();
    Join();
    StartTraining();
  }

  void Train(double duration) {
    for (double passed = 0; passed < duration; passed += kTick) {
      if (std::exchange(is_over_, false)) Pause("the round is over", 0, kTick);
      ++step_;
      trained_ += kTick;
      Wait(kTick);
    }
  }

  // A rank dies. The last `unfinished` seconds belong to no completed step. The members train again after
  // `pause`.
  void Break(double unfinished, double pause) {
    Wait(unfinished);
    LoseARank();
    Pause(kRankDied, unfinished, pause);
  }

  // A rank dies, and in the next round another before the first step. Only member 0 was in both rounds.
  void BreakTwice(double unfinished, double pause) {
    Wait(unfinished);
    LoseARank();
    const int64_t first = Stand(pause / 2);
    LoseARank();
    const int64_t second = Stand(pause - pause / 2);
    Recover({protocol::Repair{first, kRankDied, {.ranks = {1}}, unfinished, pause},
             protocol::Repair{second, kRankDied, {.ranks = {1}}, 0, pause - pause / 2}});
  }

  void EndService() {
    entry_.reset();
    unread_.clear();
    stands_ = false;
  }
  void BeginService() {
    if (entry_ != nullptr) return;
    const auto& status = observed().job.status.rendezvous;
    entry_ = std::make_unique<rendezvous::JobEntry>(
        kJob, rendezvous::JobSettings{.min_members = 2,
                                      .max_members = 2,
                                      .expected_members = 2,
                                      .first_round = status ? status->round + 1 : 1});
  }
  void StopService() {
    if (entry_ == nullptr || std::exchange(stands_, true)) return;
    stopped_ = moment().steady;
  }
  void ContinueService() {
    if (!std::exchange(stands_, false)) return;
    entry_->ExtendTimeouts(moment().steady - stopped_);
    for (const auto& message : std::exchange(unread_, {})) Read(message);
  }
  void SetApiServer(bool answers) { api_answers_ = answers; }
  void Heal() {
    ContinueService();
    BeginService();
    SetApiServer(true);
  }

  void Wait(double duration) {
    for (double left = duration; left > 0; left -= kTick) {
      observed().now += std::chrono::duration_cast<WallTime::duration>(Seconds(std::min(left, kTick)));
      since_heartbeat_ += std::min(left, kTick);
      if (since_heartbeat_ >= kHeartbeat) Beat();
      Pass();
    }
  }

  // Everything is accounted up to now.
  api::GoodputStatus Finish() {
    observed().job.spec.suspend = true;
    Pass();
    return *observed().job.status.goodput;
  }
  [[nodiscard]] double trained() const { return trained_; }
  [[nodiscard]] double wall() {
    return Seconds(observed().now - *observed().job.status.goodput->since).count();
  }

 private:
  using Message = std::function<void(rendezvous::Outbox&)>;
  inline static const protocol::JobIdentity kJob{"team", "job", "job-uid"};

  Observed& observed() { return world_.observed(); }
  rendezvous::Moment moment() { return {SteadyTime(observed().now.time_since_epoch()), observed().now}; }
  static protocol::Member MemberOf(int slot) {
    return {.pod = api::PodName("job", slot),
            .pod_uid = "uid-" + std::to_string(slot),
            .slot = slot,
            .incarnation = "1"};
  }
  [[nodiscard]] bool HasHost() const { return entry_ != nullptr && !stands_; }

  void Send(Message message) {
    if (stands_) return unread_.push_back(std::move(message));
    if (entry_ != nullptr) Read(message);
  }
  void Read(const Message& message) {
    rendezvous::Outbox outbox;
    message(outbox);
    (void)entry_->Advance(moment(), outbox);
  }

  void LoseARank() {
    Send([this, round = round_](rendezvous::Outbox& outbox) {
      entry_->Leave(
          {.member = MemberOf(1), .round = round, .reason = protocol::LeaveReason::kRankDied}, [](auto) {},
          moment(), outbox);
    });
  }
  void Pause(const std::string& reason, double unfinished, double pause) {
    const int64_t broken = Stand(pause);
    const protocol::Repair repair{broken, reason, {.ranks = {1}}, unfinished, pause};
    Recover({repair, repair});
  }
  // The formation has ended, and the next begins. Returns the one that ended.
  int64_t Stand(double pause) {
    const int64_t broken = formation_;
    is_training_ = false;
    Wait(pause / 2);
    HasHost() ? Join() : FormAgain();
    Wait(pause - pause / 2);
    return broken;
  }
  // What each member reports.
  void Recover(const std::array<protocol::Repair, 2>& repairs) {
    for (std::size_t slot = 0; slot < repairs.size(); ++slot) {
      std::vector<protocol::Repair>& reported = repairs_.at(slot);
      reported.push_back(repairs.at(slot));
      reported.back().recovered_in = formation_;
      if (reported.size() > protocol::kKeptRepairs) reported.erase(reported.begin());
    }
    StartTraining();
    is_over_ = false;
  }

  void Join() {
    for (int slot : {0, 1}) {
      Send([&](rendezvous::Outbox& outbox) {
        entry_->Join(
            {.member = MemberOf(slot), .step = step_, .last_round = formation_}, [](auto) {}, moment(),
            outbox);
      });
    }
    round_ = entry_->View().round;
    formation_ = round_;
    RC_ASSERT(entry_->View().world_size == 2);
  }
  void FormAgain() { ++formation_; }
  void StartTraining() {
    is_training_ = true;
    ++step_;
    Beat();
    Pass();
  }
  void Beat() {
    since_heartbeat_ = 0;
    for (int slot : {0, 1}) {
      const protocol::Heartbeat beat{
          .member = MemberOf(slot),
          .round = is_training_ ? round_ : 0,
          .world = 2,
          .first_rank = slot,
          .progress = {.round = is_training_ ? round_ : last_round_, .step = step_},
          .repairs = repairs_.at(static_cast<std::size_t>(slot))};
      if (is_training_) last_round_ = round_;
      Send([this, beat](rendezvous::Outbox& outbox) {
        entry_->Heartbeat(
            beat, [](auto) {}, moment(), outbox);
        const auto answer = MessageFromJson<protocol::WatchAnswer>(*ParseJson(outbox.back().second.body));
        is_over_ = is_over_ || (answer.ok() && answer->over);
      });
    }
  }
  // One pass of the operator that hosts the rendezvous, if its writes succeed.
  void Pass() {
    if (!HasHost() || !api_answers_) return;
    observed().rendezvous = entry_->View();
    std::vector<std::string> violations;
    const Json stored = api::TrainingJobStatusToJson(MakePlan(observed()).status);
    observed().job.status = api::TrainingJobStatusFromJson(stored, violations);
  }

  JobWorld world_;
  std::unique_ptr<rendezvous::JobEntry> entry_;
  std::vector<Message> unread_;
  bool stands_ = false;
  SteadyTime stopped_{};
  bool api_answers_ = true;
  bool is_training_ = false;
  bool is_over_ = false;  // the service reported the end
  int64_t round_ = 0;
  int64_t last_round_ = 0;
  int64_t formation_ = 0;
  int64_t step_ = 0;
  double since_heartbeat_ = 0;
  double trained_ = 0;
  std::array<std::vector<protocol::Repair>, 2> repairs_;  // by slot
};

void Disturb(FaultyJob& job) {
  switch (*rc::gen::inRange(0, 8)) {
    case 0: RC_LOG() << "service ends; "; return job.EndService();
    case 1: RC_LOG() << "service begins; "; return job.BeginService();
    case 2: RC_LOG() << "service stops; "; return job.StopService();
    case 3: RC_LOG() << "service continues; "; return job.ContinueService();
    case 4: RC_LOG() << "API server away; "; return job.SetApiServer(false);
    case 5: RC_LOG() << "API server back; "; return job.SetApiServer(true);
    default: break;
  }
  const double unfinished = *rc::gen::inRange(0, 6) * kTick;
  const double pause = *rc::gen::inRange(1, 60) * kTick;
  const bool is_double = *rc::gen::arbitrary<bool>();
  RC_LOG() << (is_double ? "two breaks, " : "break, ") << unfinished << " s unfinished, " << pause
           << " s pause; ";
  is_double ? job.BreakTwice(unfinished, pause) : job.Break(unfinished, pause);
}

TEST(GoodputProperty, ProductiveAreTheSecondsInWhichStepsWereMade) {
  EXPECT_TRUE(rc::check([] {
    FaultyJob job;
    const int faults = *rc::gen::inRange(1, 10);
    for (int i = 0; i < faults; ++i) {
      job.Train(*rc::gen::inRange(10, 60));
      Disturb(job);
    }
    job.Heal();
    job.Train(120);
    const api::GoodputStatus goodput = job.Finish();
    const api::LostSeconds& lost = goodput.lost_seconds;
    const double booked = goodput.productive_seconds + lost.scheduling + lost.startup + lost.rendezvous +
                          lost.checkpoint + lost.recompute + lost.stalled;
    RC_LOG() << api::TrainingJobStatusToJson({.goodput = goodput}).dump() << ", trained " << job.trained()
             << " of " << job.wall() << " s";
    RC_ASSERT(std::abs(booked - job.wall()) < 0.01 * job.wall());
    RC_ASSERT(std::abs(goodput.productive_seconds - job.trained()) < 0.02 * job.wall());
  }));
}

}  // namespace
}  // namespace lockstep::reconcile

#include "runtime/common/rendezvous/job_entry.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include "runtime/common/base/fields.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using protocol::LeaveReason;

// Two members that train; pod 1 may be lost.
class JobEntryTest : public ::testing::Test {
 protected:
  JobEntryTest() {
    for (int slot : {0, 1}) Join(slot, -1);
    Beat({.round = 1, .step = 41});
  }

  protocol::Member MemberOf(int slot) const {
    const std::string pod = "pod-" + std::to_string(slot);
    return {.pod = pod, .pod_uid = pod + "-uid", .slot = slot, .incarnation = "1"};
  }
  void Pass(std::chrono::seconds time) {
    now_.steady += time;
    now_.wall += time;
  }
  bool Advance() { return entry_.Advance(now_, outbox_); }
  void Join(int slot, int64_t step) {
    entry_.Join(
        {.member = MemberOf(slot), .step = step, .last_round = entry_.View().round}, [](auto) {}, now_,
        outbox_);
    (void)Advance();
  }
  bool Beat(const protocol::Progress& progress, const protocol::Saved& saved = {}) {
    entry_.Heartbeat(
        {.member = MemberOf(0), .round = 1, .progress = progress, .checkpoint = saved}, [](auto) {}, now_,
        outbox_);
    return Advance();
  }
  void RankDies(int slot) {
    entry_.Leave(
        {.member = MemberOf(slot), .round = 1, .reason = LeaveReason::kRankDied}, [](auto) {}, now_, outbox_);
    (void)Advance();
  }
  RoundChange change() const { return entry_.View().changes.at(0); }

  Moment now_{SteadyTime(1h), WallTime(1h)};
  Outbox outbox_;
  JobEntry entry_{{"ns", "job", "uid"}, {.min_members = 1, .max_members = 2, .expected_members = 2}};
};

TEST_F(JobEntryTest, TheMemberWithRankZeroGetsTheAddressesOfAll) {
  JobEntry entry({"ns", "job", "uid"}, {.min_members = 2, .max_members = 2, .expected_members = 2});
  std::map<int, protocol::JoinAnswer> answers;
  for (const int slot : {0, 1}) {
    entry.Join(
        {.member = MemberOf(slot), .address = "10.0.0." + std::to_string(slot)},
        [&answers, slot](const http::Response& response) {
          answers[slot] = *MessageFromJson<protocol::JoinAnswer>(*ParseJson(response.body));
        },
        now_, outbox_);
  }
  (void)entry.Advance(now_, outbox_);
  for (auto& [respond, response] : outbox_) respond(response);
  ASSERT_EQ(answers[0].first_rank, 0);
  EXPECT_EQ(answers[0].hosts, (std::vector<std::string>{"10.0.0.0", "10.0.0.1"}));
  EXPECT_TRUE(answers[1].hosts.empty())
      << "an answer to each member with all members would grow with their square";
}

TEST_F(JobEntryTest, TheNewestCheckpointOfAProgramCountsWhateverItsStepAndName) {
  const double now = Seconds(now_.wall.time_since_epoch()).count();
  const auto seen = [this](const protocol::Saved& saved) {
    Beat({.round = 1, .step = 42}, saved);
    return std::pair(entry_.View().checkpoint.step, entry_.View().checkpoint_time);
  };
  const auto ago = [this](std::chrono::seconds age) { return now_.wall - age; };
  EXPECT_EQ(seen({.step = 40, .uri = "file:///c", .completed_at = now - 9}), std::pair(int64_t{40}, ago(9s)));
  EXPECT_EQ(seen({.step = -1, .uri = "file:///c", .completed_at = now - 5}), std::pair(int64_t{-1}, ago(5s)));
  EXPECT_EQ(seen({.step = 50, .uri = "file:///d", .completed_at = now - 7}), std::pair(int64_t{-1}, ago(5s)));
  EXPECT_EQ(seen({.step = 60, .uri = "file:///d", .completed_at = now + 7}), std::pair(int64_t{60}, ago(0s)))
      << "the clock of the file server is ahead";
}

TEST_F(JobEntryTest, MeasuresTheStepsOfTheRunningRoundByTheMemberWithRankZero) {
  for (int64_t steps = 1; steps <= 12; ++steps) {
    const auto seconds = static_cast<double>(steps);
    const protocol::Progress progress{.round = 1,
                                      .step = 41 + steps,
                                      .steps_total = steps,
                                      .global_samples_total = 32 * steps,
                                      .phase_seconds = {{"reduce", seconds}}};
    Beat(progress);
    protocol::Progress other = progress;
    other.steps_total *= 100;
    entry_.Heartbeat(
        {.member = MemberOf(1), .round = 1, .first_rank = 1, .progress = other}, [](auto) {}, now_, outbox_);
  }
  EXPECT_EQ(entry_.View().measured_steps,
            (MeasuredSteps{.steps = 11, .samples = 352, .seconds = 11, .communication_seconds = 11}));
  RankDies(1);
  EXPECT_EQ(entry_.View().measured_steps, MeasuredSteps{});
}

TEST_F(JobEntryTest, AMemberWhoseNodeDepartsLearnsItFromItsHeartbeat) {
  JobSettings settings{.min_members = 1, .max_members = 2, .expected_members = 2};
  settings.departures = {{1, "the node has the taint t"}};
  entry_.Configure(settings);
  const auto answer = [this](int slot) {
    protocol::WatchAnswer found;
    entry_.Heartbeat(
        {.member = MemberOf(slot), .round = 1},
        [&found](const http::Response& response) {
          found = *MessageFromJson<protocol::WatchAnswer>(*ParseJson(response.body));
        },
        now_, outbox_);
    for (auto& [respond, response] : std::exchange(outbox_, {})) respond(response);
    return found.departure;
  };
  EXPECT_EQ(answer(0), "");
  EXPECT_EQ(answer(1), "the node has the taint t");
}

TEST_F(JobEntryTest, SaysWhatTheJobWaitsForWhileNoRoundRuns) {
  JobSettings settings{.min_members = 2, .max_members = 2, .expected_members = 2, .standby_members = 1};
  settings.waits_for = "1 of 2 pods have not started";
  entry_.Configure(settings);
  const auto ask = [&](int slot) {
    std::string body;
    entry_.Join(
        {.member = MemberOf(slot), .last_round = entry_.View().round},
        [&](const http::Response& response) { body = response.body; }, now_, outbox_);
    for (int i = 0; i < 3; ++i) {  // longer than a long poll; the members are present all the time
      Pass(7s);
      for (int alive : {0, 1, 2})
        entry_.Heartbeat(
            {.member = MemberOf(alive)}, [](auto) {}, now_, outbox_);
      (void)Advance();
    }
    for (auto& [respond, response] : std::exchange(outbox_, {})) respond(response);
    return MessageFromJson<protocol::JoinAnswer>(*ParseJson(body)).value();
  };
  const protocol::JoinAnswer standby = ask(2);
  EXPECT_TRUE(standby.standby);
  EXPECT_EQ(standby.waits_for, "") << "a round runs";
  for (const char* uid : {"pod-1-uid", "pod-2-uid"})
    entry_.PodGone({.pod_uid = uid, .reason = "evicted"}, now_, outbox_);
  EXPECT_EQ(ask(0).waits_for, "1 of 2 pods have not started");
}

TEST_F(JobEntryTest, KeepsOneWatchOfAMemberAndAnswersTheOneBeforeIt) {
  outbox_.clear();
  for (int i = 0; i < 1000; ++i) {
    for (int slot : {0, 1})
      entry_.Watch(
          {.member = MemberOf(slot), .round = 1}, [](auto) {}, now_, outbox_);
  }
  const auto answers = std::exchange(outbox_, {});
  EXPECT_EQ(answers.size(), 2 * 999U);
  EXPECT_FALSE(MessageFromJson<protocol::WatchAnswer>(*ParseJson(answers.back().second.body))->over);
  RankDies(1);
  EXPECT_EQ(outbox_.size(), 3U) << "the leave, and both watches";
}

TEST_F(JobEntryTest, MeasuresTheDiscardedStepAndTheRecovery) {
  Pass(5s);
  RankDies(1);
  Pass(2s);
  Join(0, 41);
  EXPECT_EQ(change().unfinished_seconds, 5);
  Pass(1s);
  EXPECT_TRUE(Beat({.round = 2, .step = 42})) << "worth a reconcile: the job has recovered";
  EXPECT_EQ(change().recovery_seconds, 3);
  EXPECT_EQ(change().recovered_in, 2);
  EXPECT_EQ(change().lost_steps, 0);
  EXPECT_FALSE(Beat({.round = 2, .step = 43})) << "progress alone is not";
}

TEST_F(JobEntryTest, BelievesASurvivorThatMadeStepsSinceTheLastHeartbeat) {
  Pass(5s);
  RankDies(1);
  Join(0, 60);
  EXPECT_EQ(entry_.View().progress.step, 60);
  EXPECT_EQ(change().unfinished_seconds, 0);
  (void)Beat({.round = 2, .step = 58});
  EXPECT_EQ(change().lost_steps, 3);
}

TEST_F(JobEntryTest, KnowsWhenTheNewestStepWasCompleted) {
  const auto beat = [this](int64_t step, double since) {
    const protocol::Progress progress{.round = 1, .step = step};
    entry_.Heartbeat(
        {.member = MemberOf(0), .round = 1, .progress = progress, .seconds_since_step = since}, [](auto) {},
        now_, outbox_);
    return entry_.View().step_time;
  };
  const WallTime reported = now_.wall;
  EXPECT_EQ(beat(42, 2), reported - 2s);
  Pass(4s);
  EXPECT_EQ(beat(42, 6), reported - 2s);
  EXPECT_EQ(beat(43, 1), reported + 3s);
}

TEST_F(JobEntryTest, AsksForACheckpointUntilThereIsOne) {
  const auto asked = [&](int64_t step, const protocol::Saved& saved = {}) {
    (void)Beat({.round = 1, .step = step}, saved);
    return MessageFromJson<protocol::WatchAnswer>(*ParseJson(outbox_.back().second.body))->save;
  };
  const protocol::Saved old{.step = 40, .uri = "step-40"};
  EXPECT_EQ(asked(42, old), "");
  JobSettings settings{.min_members = 1, .max_members = 2, .expected_members = 2, .save_request = "now"};
  entry_.Configure(settings);
  entry_.Heartbeat(
      {.member = MemberOf(1)}, [](auto) {}, now_, outbox_);
  EXPECT_EQ(asked(43, old), "now") << "a standby's heartbeat says nothing of the step";
  EXPECT_EQ(asked(44, old), "now") << "an answer may be lost";
  EXPECT_EQ(asked(50, {.step = 45, .uri = "step-45"}), "");
  entry_.Configure(settings);
  EXPECT_EQ(asked(51), "") << "it is the same request";
  settings.save_request = "once more";
  entry_.Configure(settings);
  EXPECT_EQ(asked(52), "once more");
}

TEST_F(JobEntryTest, AsksForAProfileUntilAllKnowItsSteps) {
  const auto asked = [&](const protocol::ProfileAgreed& agreed) {
    entry_.Heartbeat(
        {.member = MemberOf(0), .round = 1, .profile = agreed}, [](auto) {}, now_, outbox_);
    const auto answer = MessageFromJson<protocol::WatchAnswer>(*ParseJson(outbox_.back().second.body));
    return answer->profile.request + ":" + std::to_string(answer->profile.steps);
  };
  EXPECT_EQ(asked({}), ":0");
  JobSettings settings{.min_members = 1, .max_members = 2, .expected_members = 2};
  settings.profile_request = "5";
  settings.profile_steps = 5;
  entry_.Configure(settings);
  EXPECT_EQ(asked({}), "5:5");
  EXPECT_EQ(asked({"another", 8, 9}), "5:5") << "an answer may be lost";
  EXPECT_EQ(asked({"5", 42, 46}), ":0");
  entry_.Configure(settings);
  EXPECT_EQ(asked({"5", 42, 46}), ":0") << "it is the same request";
  settings.profile_request = "";
  entry_.Configure(settings);
  settings.profile_request = "5";
  entry_.Configure(settings);
  EXPECT_EQ(asked({"5", 42, 46}), "5:5") << "taken back and asked again: those steps are the old ones";
  EXPECT_EQ(asked({"5", 60, 64}), ":0");
}

TEST_F(JobEntryTest, DoesNotRepeatAProfileAfterTheHostWasReplaced) {
  JobSettings settings{.min_members = 1, .max_members = 2, .expected_members = 2};
  settings.profile_request = "5";
  settings.profile_steps = 5;
  JobEntry restarted({"ns", "job", "uid"}, settings);
  restarted.Heartbeat(
      {.member = MemberOf(0), .round = 1, .profile = {"5", 42, 46}}, [](auto) {}, now_, outbox_);
  const auto answer = MessageFromJson<protocol::WatchAnswer>(*ParseJson(outbox_.back().second.body));
  EXPECT_EQ(answer->profile.request, "");
}

TEST_F(JobEntryTest, KeepsTheNewestDamagedCheckpointsOfAllPods) {
  const auto beat = [&](int slot, std::vector<protocol::CheckpointDamaged> damaged) {
    entry_.Heartbeat(
        {.member = MemberOf(slot), .round = 1, .damaged_checkpoints = std::move(damaged)}, [](auto) {}, now_,
        outbox_);
    return Advance();
  };
  EXPECT_TRUE(beat(0, {{30, "cut short"}, {20, "is missing"}})) << "worth a reconcile";
  EXPECT_FALSE(beat(0, {{30, "cut short"}, {20, "is missing"}}));
  EXPECT_FALSE(beat(0, {})) << "the supervisor was restarted";
  EXPECT_TRUE(beat(1, {{40, "cut short"}})) << "rank 0 was in another pod";
  EXPECT_EQ(
      entry_.View().damaged_checkpoints,
      (std::vector<protocol::CheckpointDamaged>{{40, "cut short"}, {30, "cut short"}, {20, "is missing"}}));
}

TEST_F(JobEntryTest, ReportsThePodThatHasWaitedLongestForTheStore) {
  const auto beat = [&](int slot, protocol::StoreUnavailable away) {
    entry_.Heartbeat(
        {.member = MemberOf(slot), .round = 1, .store_unavailable = std::move(away)}, [](auto) {}, now_,
        outbox_);
    return Advance();
  };
  const WallTime first = now_.wall;
  EXPECT_TRUE(beat(0, {"the next checkpoint", "refused"})) << "worth a reconcile";
  now_.wall += std::chrono::seconds(5);
  EXPECT_FALSE(beat(0, {"the next checkpoint", "refused by another port"}));
  EXPECT_TRUE(beat(1, {"the last checkpoint", "refused"}));
  EXPECT_TRUE(beat(0, {"the last checkpoint", "refused"})) << "something else waits";
  const auto outage = entry_.View().store_outage;
  ASSERT_TRUE(outage.has_value());
  EXPECT_EQ(outage->since, first);
  EXPECT_EQ(outage->waiting, "the last checkpoint");
  EXPECT_EQ(outage->pod, MemberOf(0).pod);
  EXPECT_TRUE(beat(0, {}));
  EXPECT_EQ(entry_.View().store_outage->pod, MemberOf(1).pod);
  EXPECT_TRUE(beat(1, {}));
  EXPECT_FALSE(beat(1, {}));
  EXPECT_EQ(entry_.View().store_outage, std::nullopt);
}

TEST_F(JobEntryTest, AFailedSaveCountsInItsRound) {
  const auto beat = [&](int64_t step) {
    entry_.Heartbeat(
        {.member = MemberOf(0), .round = 1, .save_failed = {.step = step, .reason = "quota exceeded"}},
        [](auto) {}, now_, outbox_);
    return Advance();
  };
  EXPECT_TRUE(beat(40)) << "worth a reconcile";
  EXPECT_FALSE(beat(50)) << "nothing is stored either";
  EXPECT_EQ(entry_.View().save_failed->step, 50);
  RankDies(1);
  Join(0, 30);
  EXPECT_EQ(entry_.View().save_failed, std::nullopt) << "the next round may begin with an older step";
}

// The survivors return to the beginning of the window.
TEST_F(JobEntryTest, CountsWhatAWindowHadTakenWhenItBroke) {
  (void)Beat({.round = 1, .step = 60, .steps_under_way = 10});
  (void)Beat({.round = 1, .step = 60, .steps_under_way = 25});
  RankDies(1);
  Join(0, 60);
  (void)Beat({.round = 2, .step = 60, .steps_under_way = 1});
  EXPECT_EQ(change().lost_steps, 25);
}

TEST_F(JobEntryTest, SaysInTheNextRoundHowTheOneBeforeEnded) {
  const auto newest_answer = [&] {
    return std::move(MessageFromJson<protocol::JoinAnswer>(*ParseJson(outbox_.back().second.body))).value();
  };
  EXPECT_EQ(newest_answer().previous_end, "") << "there was none";
  entry_.Leave(
      {.member = MemberOf(1), .round = 1, .reason = LeaveReason::kRankDied, .detail = "killed by signal 9"},
      [](auto) {}, now_, outbox_);
  (void)Advance();
  Join(0, 41);
  ASSERT_EQ(newest_answer().round, 2);
  EXPECT_EQ(newest_answer().previous_end, "Infrastructure: pod-1: killed by signal 9");
}

TEST_F(JobEntryTest, RecognizesRepeatedSteps) {
  RankDies(1);
  Join(0, 30);
  (void)Beat({.round = 2, .step = 31});
  EXPECT_EQ(entry_.View().best_step, 41);
  EXPECT_FALSE(Beat({.round = 2, .step = 40}));
  EXPECT_TRUE(Beat({.round = 2, .step = 41})) << "from here on they are new";
}

TEST_F(JobEntryTest, KeepsEachCheckpointOnce) {
  for (int i = 0; i < 3; ++i) (void)Beat({}, {.step = 40, .uri = "a", .stall_seconds = 1});
  (void)Beat({}, {.step = 50, .uri = "b", .stall_seconds = 2});
  ASSERT_EQ(entry_.View().saves.size(), 2U);
  EXPECT_EQ(entry_.View().saves[1].stall_seconds, 2);
}

class StragglerEntryTest : public JobEntryTest {
 protected:
  StragglerEntryTest() {
    entry_.Configure({.min_members = 1,
                      .max_members = 2,
                      .expected_members = 2,
                      .straggler = StragglerSettings{.factor = 1.5, .window_steps = 4}});
    (void)Advance();
  }

  // The stragglers in the answer. Rank 1 takes three times as long as rank 0.
  std::vector<protocol::Straggler> Work(int rank, int64_t steps, int64_t round = 1) {
    entry_.Heartbeat({.member = MemberOf(rank),
                      .round = round,
                      .first_rank = rank,
                      .ranks = {{.rank = rank,
                                 .work_round = round,
                                 .steps = steps,
                                 .samples = steps,
                                 .compute_seconds = static_cast<double>(rank == 1 ? 3 * steps : steps)}}},
                     {}, now_, outbox_);
    const Json reply = *ParseJson(outbox_.back().second.body);
    return MessageFromJson<protocol::WatchAnswer>(reply)->stragglers;
  }
  void MakeSteps(int64_t round) {
    for (int64_t steps = 0; steps <= 4; ++steps) {
      for (int rank : {0, 1}) (void)Work(rank, steps, round);
    }
  }
};

TEST_F(StragglerEntryTest, ShowsTheRankAndNotifiesOnlyItsMember) {
  MakeSteps(1);
  EXPECT_TRUE(Advance()) << "worth a reconcile";
  EXPECT_EQ(entry_.View().stragglers, (std::vector<SlowRank>{{"pod-1", 1, 3.0}}));
  EXPECT_TRUE(Work(0, 5).empty());
  EXPECT_EQ(Work(1, 5).size(), 1U);
  EXPECT_EQ(Work(1, 5).size(), 1U) << "an answer may be lost";
}

TEST_F(StragglerEntryTest, AsksForOneRestartOfAReplica) {
  MakeSteps(1);
  protocol::LeaveRequest leave{.member = MemberOf(1), .round = 1, .reason = LeaveReason::kRankDied};
  leave.failure.cause = protocol::FailureCause::kStraggler;
  entry_.Leave(
      leave, [](auto) {}, now_, outbox_);
  (void)Advance();
  EXPECT_EQ(change().cause, protocol::FailureCause::kStraggler);
  for (int slot : {1, 0}) Join(slot, 41);
  MakeSteps(2);
  EXPECT_EQ(entry_.View().stragglers.size(), 1U) << "it is still shown";
  EXPECT_TRUE(Work(1, 5, 2).empty());
}

// Supervisors and pods that come and go without completing a step.
class EndlessIncarnations {
 public:
  void Repeat(int times) {
    for (int i = 0; i < times; ++i) {
      ++count_;
      now_.steady += 1s;
      const std::string number = std::to_string(1'000'000 + count_);
      Join({.pod = "pod-0", .pod_uid = "pod-0-uid", .slot = 0, .incarnation = "incarnation-" + number});
      Join({.pod = "pod-1", .pod_uid = "pod-1-uid-" + number, .slot = 1, .incarnation = "1"});
      if (count_ % 2 == 0)
        entry_.PodGone({.pod_uid = "pod-1-uid-" + number, .reason = "gone"}, now_, outbox_);
      (void)entry_.Advance(now_, outbox_);
      outbox_.clear();
    }
  }
  [[nodiscard]] int64_t rounds() const { return entry_.View().round; }

 private:
  void Join(const protocol::Member& member) {
    entry_.Join(
        {.member = member}, [](auto) {}, now_, outbox_);
    (void)entry_.Advance(now_, outbox_);
  }

  int count_ = 0;
  Moment now_{SteadyTime(1h), WallTime(1h)};
  Outbox outbox_;
  JobEntry entry_{{"ns", "job", "uid"}, {.min_members = 1, .max_members = 2, .expected_members = 2}};
};

TEST(JobEntry, KeepsItsSizeHoweverManyIncarnationsCome) {
  EndlessIncarnations incarnations;
  incarnations.Repeat(1'000);
  const std::size_t before = ::mallinfo2().uordblks;  // 0 with some sanitizers
  incarnations.Repeat(10'000);
  const std::size_t after = ::mallinfo2().uordblks;
  EXPECT_GT(incarnations.rounds(), 10'000);
  EXPECT_LT(after, before + 50'000) << "bytes";
}

}  // namespace
}  // namespace lockstep::rendezvous

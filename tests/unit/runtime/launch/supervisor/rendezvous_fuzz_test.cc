// Sequences of well-formed messages with normal and extreme numbers, from several members of several jobs, against the
// rendezvous service and the host of formations behind a real HTTP server, with their ticker. After each batch the job
// of two members that behave forms its round, and what the host may see of the others is within its bounds.
//
//   LOCKSTEP_FUZZ_SECONDS=180 LOCKSTEP_FUZZ_SEED=7 rendezvous_fuzz_test      runs for longer, from another seed

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <future>
#include <iostream>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "runtime/common/base/fields.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/rendezvous/client.h"
#include "runtime/common/rendezvous/service.h"
#include "runtime/launch/supervisor/formation_host.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using rendezvous::JobSettings;
using rendezvous::RendezvousView;

constexpr int kBatches = 6;  // if no time is given
constexpr int kSenders = 4;
constexpr int kMessagesOfSender = 60;
constexpr int kWildJobs = 3;
constexpr int kWildSlots = 4;

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  int Below(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  bool OneIn(int count) { return Below(count) == 0; }
  template <typename T>
  T Of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(Below(static_cast<int>(values.size())))];
  }

 private:
  std::mt19937_64 random_;
};

// Changes one field in `rarity`, mostly within its limits, so that the message is accepted.
class Scrambler {
 public:
  static constexpr bool kReading = true;

  Scrambler(Chance& chance, int rarity) : chance_(chance), rarity_(rarity) {}

  template <typename E>
  void Number(std::string_view key, E& value, E last) {
    auto number = static_cast<int>(value);
    Field(key, number, {.min = 0, .max = static_cast<double>(last)});
    value = static_cast<E>(number);
  }

  template <typename T>
  void Required(std::string_view key, T& value, const Limits& limits) {
    Field(key, value, limits);
  }

  template <typename T>
  void Field(std::string_view key, T& value, const Limits& limits = {}) {
    if constexpr (IsOptional<T>::value) {
      Field(key, value.emplace(), limits);
    } else if constexpr (requires(Scrambler & nested) { Describe(nested, value); }) {
      Describe(*this, value);
    } else if (!chance_.OneIn(rarity_)) {
      return;
    } else if constexpr (std::is_same_v<T, bool>) {
      value = !value;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(chance_.Below(static_cast<int>(WordsOf(value).size())));
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = AnyNumber<T>(limits);
    } else if constexpr (std::is_same_v<T, std::string>) {
      const std::size_t longest = limits.max_length.value_or(100);
      value = std::string(chance_.Of<std::size_t>({0, 1, longest, longest + 1}),
                          chance_.Of<char>({'x', '"', '\n'}));
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      value.assign(Count(limits), AnyNumber<int64_t>(limits));
    } else if constexpr (std::is_same_v<T, std::map<std::string, double>>) {
      value["phase"] = AnyNumber<double>(limits);
    } else {
      value.resize(Count(limits));
      for (auto& entry : value) Describe(*this, entry);
    }
  }

 private:
  std::size_t Count(const Limits& limits) {
    const std::size_t most = limits.max_items.value_or(100);
    return chance_.Of<std::size_t>({0, 1, 2, most, most + 1});
  }
  template <typename T>
  T AnyNumber(const Limits& limits) {
    const double min = limits.min.value_or(-1e9);
    const double max = limits.max.value_or(1e9);
    if (!chance_.OneIn(5))
      return static_cast<T>(chance_.Of<double>({min, min + 1, max, std::min(max, min + 7)}));
    return chance_.Of<T>({std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest(), static_cast<T>(-1),
                          0, static_cast<T>(2'000'000'000), static_cast<T>(max + 1),
                          static_cast<T>(min - 1)});
  }

  Chance& chance_;
  const int rarity_;
};

protocol::Member MemberOf(const std::string& job, int slot, const std::string& incarnation) {
  const std::string pod = job + "-" + std::to_string(slot);
  return {.pod = pod, .pod_uid = pod + "-uid", .slot = slot, .incarnation = incarnation};
}

class RendezvousFuzz : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { http::InitializeHttpThreads(kSenders + 4); }

  void SetUp() override {
    auto server =
        http::StartServer({.threads = 2}, [this](http::ServerRequest request, http::Responder respond) {
          if (request.path == protocol::kFormPath || request.path == protocol::kFormationWatchPath)
            return formations_.Handle(request, respond);
          service_.Handle(std::move(request), std::move(respond));
        });
    ASSERT_TRUE(server.ok()) << server.error().ToString();
    server_ = std::move(server).value();
    transport_ = Connect("member");
    former_ = Connect(formations_.key());
    service_.Configure(good_, {.min_members = 2, .max_members = 2, .expected_members = 2});
    ticker_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        service_.Tick();
        formations_.Tick();
        PauseFor(5ms, stop);
      }
    });
  }

  std::unique_ptr<http::HttpTransport> Connect(const std::string& token) {
    return http::MakeTransport({.url = "http://127.0.0.1:" + std::to_string(server_->port()), .token = token})
        .value();
  }

  // Jobs of every kind that the specs allow; new in each batch, so that running rounds are taken over as
  // well.
  void ConfigureWildJobs(Chance& chance, int batch) {
    wild_.clear();
    for (int i = 0; i < kWildJobs; ++i) {
      const std::string name = "wild-" + std::to_string(batch) + "-" + std::to_string(i);
      wild_.push_back({"ns", name, name});
      service_.Configure(wild_.back(), WildSettings(chance));
    }
  }
  static JobSettings WildSettings(Chance& chance) {
    JobSettings settings{
        .min_members = 1 + chance.Below(2), .max_members = 3, .expected_members = 1 + chance.Below(3)};
    settings.standby_members = chance.Below(3);
    if (chance.OneIn(2)) settings.nproc = 1 + chance.Below(2);
    if (chance.OneIn(2)) settings.straggler = rendezvous::StragglerSettings{.factor = 1.5, .window_steps = 4};
    settings.success = chance.Of<rendezvous::SuccessRule>(
        {rendezvous::SuccessRule::kAll, rendezvous::SuccessRule::kAny, rendezvous::SuccessRule::kRank0});
    settings.heartbeat_timeout = std::chrono::milliseconds(chance.Of<int>({20, 10'000}));
    settings.last_call = std::chrono::milliseconds(chance.Of<int>({0, 50}));
    settings.save_request = chance.Of<std::string>({"", "save"});
    settings.first_round = chance.Of<int64_t>({1, 5});
    return settings;
  }

  template <typename Message>
  void Send(Chance& chance, http::HttpTransport& transport, std::string_view path, Message message) {
    const protocol::JobIdentity job = message.job;
    Scrambler scrambler(chance, chance.Of<int>({1'000'000, 40, 15, 4}));
    Describe(scrambler, message);
    if (!chance.OneIn(50)) message.job = job;
    const auto answer = transport.Send({.method = "POST",
                                        .target = std::string(path),
                                        .body = DumpJson(MessageToJson(message)),
                                        .timeout = std::chrono::milliseconds(chance.Of<int>({5, 20}))},
                                       {});
    ++sent_;
    if (!answer.ok()) return;  // usually a long poll
    ++answers_.at(static_cast<std::size_t>(std::min(answer->status / 100, 5)));
    EXPECT_NE(answer->status, 500) << path << " " << DumpJson(MessageToJson(message)).substr(0, 2000);
  }

  void SendOne(Chance& chance) {
    const protocol::JobIdentity job = chance.Of(wild_);
    const protocol::Member member =
        MemberOf(job.name, chance.Below(kWildSlots), chance.Of<std::string>({"a", "a", "a", "b"}));
    const int64_t round = service_.View(job).round + chance.Below(3) - 1;
    const int nproc = 1 + chance.Below(2);
    const int rank = member.slot * nproc;
    switch (chance.Below(9)) {
      case 0:
      case 1:
      case 2: {
        protocol::JoinRequest join{.job = job, .member = member, .address = "127.0.0.1", .nproc = nproc};
        join.store_port = 4000;
        join.step = chance.Below(100);
        join.last_round = std::max<int64_t>(0, round);
        if (chance.OneIn(4)) join.finished = {std::max<int64_t>(0, round), 3 * nproc, rank};
        return Send(chance, *transport_, protocol::kJoinPath, join);
      }
      case 3:
        return Send(
            chance, *transport_, protocol::kWatchPath,
            protocol::WatchRequest{.job = job, .member = member, .round = std::max<int64_t>(0, round)});
      case 4:
      case 5:
        return Send(chance, *transport_, protocol::kHeartbeatPath, BeatOf(chance, job, member, round, nproc));
      case 6:
        return Send(chance, *transport_, protocol::kBrokenPath,
                    protocol::BrokenReport{job, member, std::max<int64_t>(0, round), "a collective failed"});
      case 7: {
        protocol::LeaveRequest leave{.job = job, .member = member, .round = std::max<int64_t>(0, round)};
        leave.reason =
            chance.OneIn(10) ? protocol::LeaveReason::kCompleted : protocol::LeaveReason::kRankDied;
        if (chance.OneIn(3)) leave.failure.ranks = {rank};
        return Send(chance, *transport_, protocol::kLeavePath, leave);
      }
      default: return SendToFormations(chance, job);
    }
  }

  static protocol::Heartbeat BeatOf(Chance& chance, const protocol::JobIdentity& job,
                                    const protocol::Member& member, int64_t round, int nproc) {
    protocol::Heartbeat beat{.job = job, .member = member, .round = std::max<int64_t>(0, round)};
    beat.world = 3 * nproc;
    beat.first_rank = std::min(member.slot, 2) * nproc;
    beat.nproc = nproc;
    for (int i = 0; i < nproc; ++i) {
      beat.ranks.push_back({.rank = beat.first_rank + i, .work_round = beat.round});
      beat.ranks.back().steps = chance.Below(50);
      beat.ranks.back().samples = chance.Below(500);
      beat.ranks.back().compute_seconds = chance.Below(20);
    }
    beat.progress = {.round = beat.round, .step = chance.Below(100)};
    if (chance.OneIn(3))
      beat.checkpoint = {.step = chance.Below(100), .uri = "file:///c/" + std::to_string(chance.Below(9))};
    if (chance.OneIn(3)) beat.repairs = {{.formation = beat.round, .reason = "a rank died"}};
    if (chance.OneIn(3)) beat.damaged_checkpoints = {{chance.Below(100), "is missing"}};
    return beat;
  }

  void SendToFormations(Chance& chance, const protocol::JobIdentity& job) {
    if (chance.OneIn(3)) {
      return Send(chance, *former_, protocol::kFormationWatchPath,
                  protocol::FormationWatch{.job = job, .round = 5, .formation = 5 + chance.Below(3)});
    }
    Send(chance, *former_, protocol::kFormPath,
         protocol::FormRequest{.job = job,
                               .round = 5,
                               .formation = 5 + chance.Below(3),
                               .first_rank = chance.Below(3),
                               .nproc = 1,
                               .store_port = 4000});
  }

  void Batch(uint64_t seed, int batch) {
    Chance chance(seed);
    ConfigureWildJobs(chance, batch);
    formations_.Host(5, 3);
    {
      std::vector<std::jthread> senders;
      for (int i = 0; i < kSenders; ++i) {
        senders.emplace_back([this, own = Chance(seed * 1'000'003 + static_cast<uint64_t>(i))]() mutable {
          for (int k = 0; k < kMessagesOfSender; ++k) SendOne(own);
        });
      }
    }
    for (const protocol::JobIdentity& job : wild_) {
      service_.PodGone(job, {.pod_uid = job.name + "-0-uid", .reason = "deleted"});
      CheckBounds(service_.View(job));
      service_.Forget(job);
    }
    CheckGoodJob();
    CheckFormation();
  }

  static void CheckBounds(const RendezvousView& view) {
    EXPECT_GE(view.world_size, 0);
    EXPECT_LE(view.world_size, protocol::kMaxRanks);
    EXPECT_LE(view.members.size(), static_cast<std::size_t>(2 * protocol::kMaxMembers));
    EXPECT_GE(view.round, 0);
    EXPECT_LT(view.round, 1'000'000'000) << "each message may lead by a million";
    EXPECT_GE(view.waiting, 0);
    EXPECT_LE(view.changes.size(), 10U);
    EXPECT_LE(view.saves.size(), 32U);
    EXPECT_LE(view.damaged_checkpoints.size(), protocol::kKeptDamages);
    for (const rendezvous::RoundChange& change : view.changes) {
      EXPECT_GE(change.lost_steps, 0);
      EXPECT_TRUE(std::isfinite(change.recovery_seconds)) << change.recovery_seconds;
      EXPECT_GE(change.unfinished_seconds, 0);
      for (const rendezvous::Departure& departure : change.departures)
        EXPECT_LE(departure.ranks.size(), static_cast<std::size_t>(protocol::kMaxRanksPerMember));
    }
    for (const rendezvous::SlowRank& slow : view.stragglers) EXPECT_GT(slow.slowness, 1);
  }

  protocol::JoinAnswer JoinGood(int slot) {
    const protocol::JoinRequest request{.job = good_,
                                        .member = MemberOf("good", slot, "a"),
                                        .address = "127.0.0.1",
                                        .store_port = 4000 + slot,
                                        .last_round = good_round_};
    for (int i = 0; i < 10; ++i) {
      const auto answer = rendezvous::RendezvousClient(*transport_).Join(request, {});
      EXPECT_TRUE(answer.ok()) << answer.error().ToString();
      if (!answer.ok() || answer->state != protocol::JoinState::kWaiting)
        return answer.ok() ? *answer : protocol::JoinAnswer{};
    }
    return {};
  }

  void CheckGoodJob() {
    for (int slot : {0, 1}) {
      const protocol::LeaveRequest leave{.job = good_,
                                         .member = MemberOf("good", slot, "a"),
                                         .round = good_round_,
                                         .reason = protocol::LeaveReason::kRankDied};
      EXPECT_TRUE(rendezvous::RendezvousClient(*transport_).Leave(leave, {}).ok());
    }
    auto other = std::async(std::launch::async, [this] { return JoinGood(1); });
    const protocol::JoinAnswer first = JoinGood(0);
    const protocol::JoinAnswer second = other.get();
    EXPECT_EQ(first.state, protocol::JoinState::kAssigned);
    EXPECT_EQ(first.round, second.round);
    EXPECT_EQ(first.world, 2);
    EXPECT_EQ((std::set<int>{first.first_rank, second.first_rank}), (std::set<int>{0, 1}));
    EXPECT_EQ(first.round, good_round_ + 1) << "no other job and no stranger took part";
    good_round_ = first.round;
  }

  void CheckFormation() {
    formations_.Host(6, 2);  // a request of round 5 may still be in flight
    const auto form = [this](int rank) {
      const protocol::FormRequest request{
          .job = good_, .round = 6, .formation = 6, .first_rank = rank, .store_port = 4000};
      return rendezvous::RendezvousClient(*former_).Form(request, {});
    };
    auto other = std::async(std::launch::async, [&] { return form(1); });
    const auto first = form(0);
    const auto second = other.get();
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_TRUE(first->formed && second->formed);
    EXPECT_EQ(first->formation, 7);
  }

  const SystemClock clock_;
  const protocol::JobIdentity good_{"ns", "good", "good-job"};
  int64_t good_round_ = 0;
  std::vector<protocol::JobIdentity> wild_;
  std::atomic<int64_t> sent_ = 0;
  std::array<std::atomic<int64_t>, 6> answers_{};  // by the first digit of the status
  FormationHost formations_{clock_};
  rendezvous::RendezvousService service_{clock_, [](const rendezvous::Claim&, auto done) { done({}); },
                                         [](const auto&) {}};
  std::unique_ptr<http::HttpServer> server_;
  std::unique_ptr<http::HttpTransport> transport_;
  std::unique_ptr<http::HttpTransport> former_;  // has the key of the formations
  std::jthread ticker_;
};

TEST_F(RendezvousFuzz, NoSequenceOfMessagesReachesBeyondItsJob) {
  const auto seed = static_cast<uint64_t>(std::stoull(EnvOr("LOCKSTEP_FUZZ_SEED", "1")));
  const std::chrono::seconds given(std::stoll(EnvOr("LOCKSTEP_FUZZ_SECONDS", "0")));
  const auto start = std::chrono::steady_clock::now();
  int batch = 0;
  const auto continues = [&] {
    return given.count() > 0 ? std::chrono::steady_clock::now() - start < given : batch < kBatches;
  };
  for (; continues() && !HasFailure(); ++batch) {
    SCOPED_TRACE("LOCKSTEP_FUZZ_SEED=" + std::to_string(seed + static_cast<uint64_t>(batch)));
    Batch(seed + static_cast<uint64_t>(batch), batch);
  }
  std::cout << sent_ << " messages in " << batch << " batches from seed " << seed << ": " << answers_.at(2)
            << " taken, " << answers_.at(4) << " refused, " << answers_.at(5) << " failed, the others waited"
            << std::endl;
  EXPECT_GT(answers_.at(2).load(), 0);
  EXPECT_GT(answers_.at(4).load(), 0);
}

}  // namespace
}  // namespace lockstep::launch

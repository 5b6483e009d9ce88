// One address floods the rendezvous with connections and bad tokens while jobs train: the operator's server,
// service and token reviewer, with an API server that is slow, and members that are as those of pods.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "operator/rendezvous/certificates.h"
#include "operator/rendezvous/host.h"
#include "operator/rendezvous/pod_feed.h"
#include "operator/rendezvous/token_review.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/open_files.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/resident_memory.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/rendezvous/client.h"
#include "tests/integration/storms/attackers.h"
#include "tests/support/creating_writer.h"
#include "tests/support/eventually.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr int kJobs = 50;
constexpr int kMembers = 2;  // of each
constexpr std::size_t kConnections = 5'000;
constexpr int kBadTokensPerSecond = 1'000;
constexpr std::size_t kBadTokens = 3'000;  // answered, before the storm is over
constexpr int64_t kBeats = 5;              // of each member in the storm
constexpr const char* kAttacker = "127.0.0.2";

// The real time, moved on by the test.
class MovedClock final : public Clock {
 public:
  [[nodiscard]] WallTime Now() const override { return clock_.Now() + moved_.load(); }
  [[nodiscard]] SteadyTime Steady() const override { return clock_.Steady() + moved_.load(); }
  void Advance(std::chrono::seconds time) { moved_ = moved_.load() + time; }

 private:
  const SystemClock clock_;
  std::atomic<std::chrono::seconds> moved_{};
};

// Reviews tokens, slowly. A good one is "namespace:pod:uid".
class SlowApiServer final : public testing::CreatingWriter {
 public:
  Result<Json> Create(const kube::Resource&, const Json& review) override {
    PauseFor(20ms, {});
    const std::vector<std::string> parts = Split(StringAt(review, {"spec", "token"}), ':');
    if (parts.size() != 3) {
      ++bad_;
      return Json{{"status", {{"error", "bad"}}}};
    }
    ++good_;
    const Json extra = {{"authentication.kubernetes.io/pod-name", {parts[1]}},
                        {"authentication.kubernetes.io/pod-uid", {parts[2]}}};
    return Json{
        {"status",
         {{"authenticated", true},
          {"audiences", {"lockstep"}},
          {"user", {{"username", "system:serviceaccount:" + parts[0] + ":default"}, {"extra", extra}}}}}};
  }
  [[nodiscard]] int bad() const { return bad_; }
  [[nodiscard]] int good() const { return good_; }

 private:
  std::atomic<int> bad_ = 0;
  std::atomic<int> good_ = 0;
};

protocol::JobIdentity JobNumber(int number) {
  const std::string name = "job-" + std::to_string(number);
  return {"storm", name, name + "-uid"};
}

// A pod's supervisor: one thread joins and watches, the other beats.
class Worker {
 public:
  Worker(const std::string& url, const std::string& ca_file, int job, int slot, int life)
      : job_(JobNumber(job)),
        member_{.pod = job_.name + "-worker-" + std::to_string(slot),
                .pod_uid = job_.name + "-" + std::to_string(slot) + "-" + std::to_string(life),
                .slot = slot,
                .incarnation = "1"},
        transport_(http::MakeTransport({.url = url,
                                        .ca_file = ca_file,
                                        .token = job_.name_space + ":" + member_.pod + ":" + member_.pod_uid,
                                        .use_proxy_environment = false})
                       .value()),
        client_(*transport_) {}

  void Start() {
    poller_ = std::jthread([this](const std::stop_token& stop) { Poll(stop); });
    beater_ = std::jthread([this](const std::stop_token& stop) { Beat(stop); });
  }

  // As the API server has it.
  [[nodiscard]] Json Pod() const {
    const Json owner = {{"apiVersion", "lockstep.dev/v1alpha1"},
                        {"kind", "DistributedTrainingJob"},
                        {"name", job_.name},
                        {"uid", job_.uid},
                        {"controller", true}};
    return {
        {"metadata",
         {{"namespace", job_.name_space},
          {"name", member_.pod},
          {"uid", member_.pod_uid},
          {"resourceVersion", "1"},
          {"labels", {{"lockstep.dev/job", job_.name}, {"lockstep.dev/slot", std::to_string(member_.slot)}}},
          {"ownerReferences", Json::array({owner})}}},
        {"status", {{"phase", "Running"}}}};
  }
  [[nodiscard]] int64_t round() const { return round_; }
  [[nodiscard]] int64_t beats() const { return beats_; }
  [[nodiscard]] int64_t refused() const { return refused_; }

 private:
  void Poll(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto joined = client_.Join({.job = job_,
                                        .member = member_,
                                        .address = "10.0.0.1",
                                        .store_port = 29500,
                                        .step = 1,
                                        .last_round = round_},
                                       stop);
      if (!joined.ok()) {
        TakeNote(joined.error());
        PauseFor(100ms, stop);
      } else if (joined->state == protocol::JoinState::kAssigned) {
        round_ = joined->round;
        WatchRound(stop);
      }
    }
  }

  void WatchRound(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto watched = client_.Watch({job_, member_, round_}, stop);
      if (watched.ok() && watched->over) return;
      if (watched.ok()) continue;
      TakeNote(watched.error());
      PauseFor(100ms, stop);
    }
  }

  void Beat(const std::stop_token& stop) {
    do {
      const auto answer = client_.Heartbeat({.job = job_, .member = member_, .round = round_}, stop);
      answer.ok() ? void(++beats_) : TakeNote(answer.error());
    } while (PauseFor(500ms, stop));
  }

  void TakeNote(const Error& error) {
    if (error.code == ErrorCode::kUnauthorized || error.code == ErrorCode::kForbidden) ++refused_;
  }

  const protocol::JobIdentity job_;
  const protocol::Member member_;
  std::unique_ptr<http::HttpTransport> transport_;
  rendezvous::RendezvousClient client_;
  std::atomic<int64_t> round_ = 0;
  std::atomic<int64_t> beats_ = 0;
  std::atomic<int64_t> refused_ = 0;
  std::jthread poller_;
  std::jthread beater_;
};

class StormTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    RaiseOpenFileLimit();
    ::setenv("SSL_CERT_FILE", "/dev/null", 1);  // public authorities: each client would read them
    http::InitializeHttpThreads(2);
  }

  void SetUp() override {
    reviewer_ = std::make_unique<rendezvous::TokenReviewer>(api_server_, pods_, reviewer_clock_);
    for (int job = 0; job < kJobs; ++job) {
      service_.Configure(JobNumber(job), {.min_members = kMembers,
                                          .max_members = kMembers,
                                          .expected_members = kMembers,
                                          .heartbeat_timeout = 30s});
    }
    const auto identity = rendezvous::MakeServerIdentity({"localhost"}, clock_.Now());
    ASSERT_TRUE(identity.ok());
    ASSERT_TRUE(certificate_.Use(identity->certificate, identity->key).ok());
    auto host = rendezvous::Host::Start({"127.0.0.1:0", &certificate_}, service_);
    ASSERT_TRUE(host.ok());
    host_ = std::move(host).value();
    folder_ = ::testing::TempDir() + "/storm-" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(WriteFile(folder_ + "/ca.pem", identity->ca).ok());
    for (int job = 0; job < kJobs; ++job) {
      for (int slot = 0; slot < kMembers; ++slot) workers_.push_back(StartWorker(job, slot, 1));
    }
  }
  void TearDown() override {
    workers_.clear();
    host_.reset();
    reviewer_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<Worker> StartWorker(int job, int slot, int life) {
    auto worker = std::make_unique<Worker>("https://localhost:" + std::to_string(host_->port()),
                                           folder_ + "/ca.pem", job, slot, life);
    pods_.Put(worker->Pod());
    worker->Start();
    return worker;
  }

  // The last member of each job is lost, and another takes its place.
  void ReplacePods() {
    for (int job = 0; job < kJobs; ++job) {
      auto& worker = workers_[static_cast<std::size_t>(job * kMembers + kMembers - 1)];
      const auto pod = std::make_shared<const Json>(worker->Pod());
      worker.reset();
      pods_.Remove(*pod);
      feed_.OnChange({.before = pod, .after = nullptr});
      worker = StartWorker(job, kMembers - 1, 2);
    }
  }

  bool AllAreIn(int64_t round) {
    return testing::Eventually([&] {
      return std::all_of(workers_.begin(), workers_.end(),
                         [&](const auto& worker) { return worker->round() == round; });
    });
  }

  const SystemClock clock_;
  MovedClock reviewer_clock_;
  SlowApiServer api_server_;
  kube::Store pods_;
  const kube::Store jobs_;
  std::unique_ptr<rendezvous::TokenReviewer> reviewer_;
  rendezvous::RendezvousService service_{
      clock_, [this](const auto& claim, auto done) { reviewer_->Authorize(claim, std::move(done)); },
      [](const protocol::JobIdentity&) {}};
  rendezvous::PodFeed feed_{jobs_, service_};
  http::ServerCertificate certificate_;
  std::unique_ptr<rendezvous::Host> host_;
  std::string folder_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_F(StormTest, NoRoundBreaksThatWasNotMeantTo) {
  ASSERT_TRUE(AllAreIn(1));
  [[maybe_unused]] const double memory_before = ResidentBytes(::getpid()).value_or(0);
  const SteadyTime begin = clock_.Steady();
  testing::TokenFlood tokens(kAttacker, host_->port(), kBadTokensPerSecond);
  testing::ConnectionFlood connections(kAttacker, host_->port(), kConnections);
  ASSERT_TRUE(testing::Eventually([&] { return tokens.unavailable() > 0; })) << "the limit of the source";
  ASSERT_TRUE(testing::Eventually([&] { return connections.opened() >= kConnections; }));

  reviewer_clock_.Advance(61s);  // all known tokens are to be reviewed again
  std::vector<int64_t> beats;
  for (const auto& worker : workers_) beats.push_back(worker->beats() + kBeats);
  EXPECT_TRUE(testing::Eventually([&] {
    return std::equal(workers_.begin(), workers_.end(), beats.begin(),
                      [](const auto& worker, int64_t least) { return worker->beats() >= least; });
  })) << "heartbeats are answered";
  for (int job = 0; job < kJobs; ++job) EXPECT_EQ(service_.View(JobNumber(job)).round, 1) << job;

  ReplacePods();
  EXPECT_TRUE(AllAreIn(2)) << "losses are repaired";
  EXPECT_TRUE(testing::Eventually([&] {
    return tokens.unauthorized() + tokens.unavailable() >= kBadTokens && connections.closed() > 0;
  }));

  for (int job = 0; job < kJobs; ++job) {
    const rendezvous::RendezvousView view = service_.View(JobNumber(job));
    EXPECT_EQ(view.round, 2) << job;
    EXPECT_EQ(view.world_size, kMembers) << job;
  }
  for (const auto& worker : workers_) EXPECT_EQ(worker->refused(), 0);
  EXPECT_EQ(tokens.others(), 0U);
  const double seconds = Seconds(clock_.Steady() - begin).count() + 61;
  EXPECT_LE(api_server_.bad(), 60 + seconds) << "reviews that bad tokens cost";
#ifndef __SANITIZE_ADDRESS__
  // Of both sides. The server has 1,000 connections of the attacker at most.
  EXPECT_LT(ResidentBytes(::getpid()).value_or(0) - memory_before, 256e6);
#endif
}

}  // namespace
}  // namespace lockstep

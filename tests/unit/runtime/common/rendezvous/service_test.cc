// Members against the service over loopback HTTP.

#include "runtime/common/rendezvous/service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <thread>

#include "runtime/common/base/fields.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/rendezvous/client.h"
#include "tests/support/fake_clock.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using protocol::JoinState;
using protocol::LeaveReason;
using testing::FakeClock;

class ServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { http::InitializeHttpThreads(2); }

  void SetUp() override {
    auto server = http::StartServer({}, [this](http::ServerRequest request, http::Responder respond) {
      service_.Handle(std::move(request), std::move(respond));
    });
    ASSERT_TRUE(server.ok());
    server_ = std::move(server).value();
    auto transport =
        http::MakeTransport({.url = "http://127.0.0.1:" + std::to_string(server_->port()), .token = "good"});
    ASSERT_TRUE(transport.ok());
    transport_ = std::move(transport).value();
    service_.Configure(job_, {.min_members = 1, .max_members = 2, .expected_members = 2});
  }

  protocol::Member MemberOf(int slot) const {
    const std::string pod = "pod-" + std::to_string(slot);
    return {.pod = pod, .pod_uid = pod + "-uid", .slot = slot, .incarnation = "1"};
  }
  protocol::JoinRequest RequestOf(int slot) const {
    return {.job = job_,
            .member = MemberOf(slot),
            .address = "127.0.0.1",
            .store_port = 1000 + slot,
            .last_round = service_.View(job_).round};
  }
  // Joins both members into one round; returns slot 0's answer.
  protocol::JoinAnswer FormRound() {
    auto other = std::async(std::launch::async, [&] { return client().Join(RequestOf(1), {}); });
    auto mine = client().Join(RequestOf(0), {});
    EXPECT_TRUE(mine.ok() && other.get().ok());
    return *mine;
  }
  RendezvousClient client() { return RendezvousClient(*transport_); }

  FakeClock clock_;
  const protocol::JobIdentity job_{"ns", "job", "job-uid"};
  std::atomic<int> changes_{0};
  std::atomic<bool> throws_{false};
  RendezvousService service_{clock_,
                             [](const Claim& claim, auto done) {
                               if (claim.token != "good")
                                 return done(Error{ErrorCode::kUnauthorized, "who are you"});
                               if (claim.member.slot == 9)
                                 return done(Error{ErrorCode::kForbidden, "not your job"});
                               if (claim.member.slot == 8)
                                 return done(Error{ErrorCode::kThrottled, "too many ask"});
                               done({});
                             },
                             [this](const protocol::JobIdentity&) {
                               ++changes_;
                               if (throws_) throw std::runtime_error("thrown");
                             }};
  std::unique_ptr<http::HttpServer> server_;
  std::unique_ptr<http::HttpTransport> transport_;
};

TEST_F(ServiceTest, TwoMembersGetOneRoundWithRanksAndStore) {
  const protocol::JoinAnswer answer = FormRound();
  EXPECT_EQ(answer.state, JoinState::kAssigned);
  EXPECT_EQ(answer.round, 1);
  EXPECT_EQ(answer.world, 2);
  EXPECT_EQ(answer.first_rank, 0);
  EXPECT_EQ(answer.store_port, 1000);
  EXPECT_EQ(service_.View(job_).members, (std::vector<std::string>{"pod-0", "pod-1"}));
  EXPECT_GT(changes_, 0);
}

TEST_F(ServiceTest, AWatchEndsAtOnceWhenAPodIsGone) {
  FormRound();
  auto watch = std::async(std::launch::async, [&] {
    return client().Watch({.job = job_, .member = MemberOf(0), .round = 1}, {});
  });
  service_.PodGone(job_, {.pod_uid = "pod-1-uid", .reason = "deleted"});
  const auto answer = watch.get();
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_TRUE(answer->over);
  EXPECT_EQ(answer->reason, "pod-1: deleted");
  EXPECT_EQ(client().Join(RequestOf(1), {}).error().code, ErrorCode::kGone);
  EXPECT_EQ(service_.View(job_).changes.back().departures.at(0).pod, "pod-1");
}

TEST_F(ServiceTest, TheViewNamesThePodsThatAreHeardAndForHowLongItListens) {
  FormRound();
  EXPECT_EQ(service_.View(job_).responsive_pods, (std::vector<std::string>{"pod-0-uid", "pod-1-uid"}));
  service_.PodGone(job_, {.pod_uid = "pod-1-uid", .reason = "deleted"});
  EXPECT_EQ(service_.View(job_).responsive_pods, std::vector<std::string>{"pod-0-uid"});
  const Seconds before = service_.View(job_).listening;
  clock_.Advance(3s);
  EXPECT_EQ(service_.View(job_).listening - before, Seconds(3));
}

TEST_F(ServiceTest, ALostAnswerIsGivenAgainAtOnce) {
  FormRound();
  protocol::JoinRequest again = RequestOf(1);
  again.last_round = 0;
  const auto answer = client().Join(again, {});
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_EQ(answer->state, JoinState::kAssigned);
  EXPECT_EQ(answer->round, 1);
  EXPECT_EQ(answer->first_rank, 1);
}

TEST_F(ServiceTest, AWatchOfARoundThatIsOverIsAnsweredAtOnce) {
  FormRound();
  service_.PodGone(job_, {.pod_uid = "pod-1-uid", .reason = "deleted"});
  const auto answer = client().Watch({.job = job_, .member = MemberOf(0), .round = 1}, {});
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_TRUE(answer->over);
}

TEST_F(ServiceTest, HeartbeatsCarryProgressCheckpointAndRecoveryIntoTheView) {
  FormRound();
  protocol::Heartbeat beat{.job = job_, .member = MemberOf(0), .round = 1};
  beat.progress = {.round = 1, .step = 41, .loss = 0.5};
  beat.checkpoint = {.step = 40, .uri = "file:///c/step-40"};
  EXPECT_FALSE(client().Heartbeat(beat, {})->over);
  EXPECT_EQ(service_.View(job_).progress.step, 41);
  EXPECT_EQ(service_.View(job_).checkpoint.step, 40);

  ASSERT_TRUE(
      client()
          .Leave({.job = job_, .member = MemberOf(1), .round = 1, .reason = LeaveReason::kRankDied}, {})
          .ok());
  EXPECT_TRUE(client().Heartbeat(beat, {})->over);
  clock_.Advance(100ms);
  ASSERT_EQ(client().Join(RequestOf(0), {})->round, 2);
  beat.round = 2;
  beat.progress = {.round = 2, .step = 41};
  ASSERT_TRUE(client().Heartbeat(beat, {}).ok());
  const RoundChange change = service_.View(job_).changes.back();
  EXPECT_GT(change.recovery_seconds, 0);
  EXPECT_EQ(change.lost_steps, 1) << "step 41 was done twice";
}

TEST_F(ServiceTest, ANewcomerStartsItsProgramFirstWhereMembersKeepTheirState) {
  service_.Configure(job_, {.min_members = 1, .max_members = 1, .expected_members = 1});
  protocol::JoinRequest first = RequestOf(0);
  first.can_start_first = true;
  ASSERT_EQ(client().Join(first, {})->state, JoinState::kAssigned) << "nobody has state yet";
  service_.Configure(job_, {.min_members = 1, .max_members = 2, .expected_members = 2});
  const protocol::Heartbeat beat{.job = job_, .member = MemberOf(0), .round = 1, .keeps_state = true};
  ASSERT_TRUE(client().Heartbeat(beat, {}).ok());
  protocol::JoinRequest newcomer = RequestOf(1);
  newcomer.can_start_first = true;
  const auto answer = client().Join(newcomer, {});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->state, JoinState::kWaiting);
  EXPECT_TRUE(answer->start_first);
  EXPECT_FALSE(client().Heartbeat(beat, {})->over) << "the round continues without it";
}

TEST_F(ServiceTest, APauseOfTheHostDoesNotCountAsSilence) {
  FormRound();
  clock_.Advance(60s);
  service_.Tick();
  EXPECT_EQ(service_.View(job_).world_size, 2);

  for (const auto start = clock_.Steady(); clock_.Steady() < start + 11s; service_.Tick()) {
    clock_.Advance(500ms);
    ASSERT_TRUE(client().Heartbeat({.job = job_, .member = MemberOf(0), .round = 1}, {}).ok());
  }
  EXPECT_EQ(service_.View(job_).changes.back().departures.at(0).pod, "pod-1")
      << "silent while the host was there";
}

TEST_F(ServiceTest, AfterCompletionTheAnswerToAJoinIsCompleted) {
  FormRound();
  ASSERT_TRUE(
      client()
          .Leave({.job = job_, .member = MemberOf(0), .round = 1, .reason = LeaveReason::kCompleted}, {})
          .ok());
  EXPECT_TRUE(service_.View(job_).completed);
  EXPECT_EQ(client().Join(RequestOf(1), {})->state, JoinState::kCompleted);
}

TEST_F(ServiceTest, WhatCannotBeDecidedNowIsNoRefusal) {
  const Json beat = MessageToJson(protocol::Heartbeat{.job = job_, .member = MemberOf(8)});
  const auto answer =
      transport_->Send({.method = "POST", .target = "/v1/heartbeat", .body = DumpJson(beat)}, {});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 503);
  EXPECT_TRUE(client().Broken({.job = job_, .member = MemberOf(8)}, {}).error().IsTransient());
}

TEST_F(ServiceTest, RefusesStrangersUnknownJobsAndBadMessages) {
  auto stranger =
      http::MakeTransport({.url = "http://127.0.0.1:" + std::to_string(server_->port()), .token = "bad"});
  EXPECT_EQ(RendezvousClient(**stranger).Join(RequestOf(0), {}).error().code, ErrorCode::kUnauthorized);
  EXPECT_EQ(client().Join(RequestOf(9), {}).error().code, ErrorCode::kForbidden);
  protocol::JoinRequest other = RequestOf(0);
  other.job.uid = "other";
  EXPECT_EQ(client().Join(other, {}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(transport_->Send({.method = "POST", .target = "/v1/join", .body = "{"}, {})->status, 400);
  EXPECT_EQ(transport_->Send({.method = "POST", .target = "/v2/join", .body = "{}"}, {})->status, 404);
}

TEST_F(ServiceTest, NamesTheHostOfAJobThatAnotherReplicaHosts) {
  HostedAt host{.is_here = false, .address = "10.0.0.7:29400"};
  RendezvousService service(
      clock_, [](const Claim&, auto) { ADD_FAILURE() << "no authorization is needed"; },
      [](const protocol::JobIdentity&) {}, [&](const protocol::JobIdentity&) { return host; });
  service.Configure(job_, {});
  http::Response answer;
  const http::ServerRequest request{.method = "POST",
                                    .path = std::string(protocol::kJoinPath),
                                    .body = DumpJson(MessageToJson(RequestOf(0)))};
  const auto respond = [&](http::Response response) { answer = std::move(response); };
  service.Handle(request, respond);
  EXPECT_EQ(answer.status, 421);
  EXPECT_EQ(StringAt(*ParseJson(answer.body), {"host"}), "10.0.0.7:29400");
  host.address.clear();
  service.Handle(request, respond);
  EXPECT_EQ(answer.status, 503) << "no replica hosts it: the member tries again";
}

// The authorizer accepts a pod of the namespace in the message. Others may know the uid.
TEST_F(ServiceTest, AMessageThatNamesAnotherJobWithTheSameUidIsRefused) {
  FormRound();
  for (const protocol::JobIdentity& other :
       {protocol::JobIdentity{"aaa", job_.name, job_.uid}, {job_.name_space, "other", job_.uid}}) {
    protocol::JoinRequest join = RequestOf(0);
    join.job = other;
    join.member.incarnation = "2";
    const protocol::Member member = MemberOf(0);
    EXPECT_EQ(client().Join(join, {}).error().code, ErrorCode::kForbidden);
    EXPECT_EQ(client().Watch({.job = other, .member = member}, {}).error().code, ErrorCode::kForbidden);
    protocol::Heartbeat beat{.job = other, .member = member, .round = 1};
    beat.progress = {.round = 1, .step = 1000};
    EXPECT_EQ(client().Heartbeat(beat, {}).error().code, ErrorCode::kForbidden);
    EXPECT_EQ(client().Broken({.job = other, .member = member, .round = 1}, {}).error().code,
              ErrorCode::kForbidden);
    const protocol::LeaveRequest leave{
        .job = other, .member = member, .round = 1, .reason = LeaveReason::kCompleted};
    const auto left = client().Leave(leave, {});
    EXPECT_EQ(left.error().code, ErrorCode::kForbidden);
    EXPECT_NE(left.error().message.find("the job of this uid is not"), std::string::npos)
        << left.error().message;

    service_.PodGone(other, {.pod_uid = "pod-1-uid", .reason = "deleted"});
    service_.Configure(other, {.min_members = 5, .max_members = 5, .expected_members = 5});
    service_.Forget(other);
    EXPECT_EQ(service_.View(other).round, 0);
  }
  const RendezvousView view = service_.View(job_);
  EXPECT_EQ(view.round, 1);
  EXPECT_EQ(view.world_size, 2);
  EXPECT_EQ(view.progress.step, 0);
  EXPECT_FALSE(view.completed);
  EXPECT_TRUE(view.changes.empty());
  EXPECT_TRUE(client().Heartbeat({.job = job_, .member = MemberOf(0), .round = 1}, {}).ok());
}

TEST_F(ServiceTest, ARefusedSenderIsOneLineOfTheLogForEachKindOfMessage) {
  protocol::JoinRequest join = RequestOf(0);
  join.job.name_space = "aaa";
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(client().Join(join, {}).ok());
  EXPECT_FALSE(client().Watch({.job = join.job, .member = MemberOf(0)}, {}).ok());
  EXPECT_FALSE(client().Join(RequestOf(9), {}).ok());
  const std::vector<std::string> lines = Split(::testing::internal::GetCapturedStderr(), '\n');
  std::vector<std::string> refusals;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(refusals), [](const std::string& line) {
    return line.find("a message to the rendezvous was refused") != std::string::npos;
  });
  ASSERT_EQ(refusals.size(), 3U);
  EXPECT_NE(refusals[0].find(R"("path":"/v1/join","job":"aaa/job","job_uid":"job-uid","pod":"pod-0")"),
            std::string::npos)
      << refusals[0];
  EXPECT_NE(refusals[2].find("not your job"), std::string::npos) << refusals[2];
}

TEST_F(ServiceTest, AnExceptionOverAMessageOrAJobEndsThatOneAlone) {
  const protocol::JobIdentity other{"ns", "other", "other-uid"};
  service_.Configure(other, {.min_members = 1, .max_members = 1, .expected_members = 1});
  throws_ = true;
  EXPECT_EQ(FormRound().round, 1);
  protocol::JoinRequest request = RequestOf(0);
  request.job = other;
  EXPECT_EQ(client().Join(request, {})->state, JoinState::kAssigned);
  const auto start = clock_.Steady();
  for (; clock_.Steady() < start + 11s; service_.Tick()) clock_.Advance(500ms);
  for (const protocol::JobIdentity& job : {job_, other})
    EXPECT_FALSE(service_.View(job).changes.empty()) << job.name << ": its members were silent";
}

TEST_F(ServiceTest, AnExceptionOnAThreadOfTheAuthorizerIsAnswered) {
  // As a review does, whose thread calls back.
  std::vector<std::jthread> threads;
  RendezvousService service(
      clock_, [&](const Claim&, auto done) { threads.emplace_back([done = std::move(done)] { done({}); }); },
      [](const auto&) { throw std::runtime_error("thrown"); });
  service.Configure(job_, {.min_members = 1, .max_members = 1, .expected_members = 1});
  std::promise<int> status;
  const http::Responder respond = [&, is_first = std::make_shared<std::atomic<bool>>(true)](auto response) {
    if (is_first->exchange(false)) status.set_value(response.status);
  };
  service.Handle({.method = "POST",
                  .path = std::string(protocol::kJoinPath),
                  .body = DumpJson(MessageToJson(RequestOf(0)))},
                 respond);
  EXPECT_EQ(status.get_future().get(), 200) << "it has its place before others are notified";
  threads.clear();  // joins: the exception came after the answer
}

// From a pod of the job with a valid token.
TEST_F(ServiceTest, NumbersThatCannotBeAreRefusedByNameAndChangeNothing) {
  FormRound();
  const Json join = MessageToJson(RequestOf(1));
  const Json beat = MessageToJson(
      protocol::Heartbeat{.job = job_, .member = MemberOf(1), .round = 1, .world = 2, .first_rank = 1});
  const Json leave = MessageToJson(protocol::LeaveRequest{.job = job_, .member = MemberOf(1)});
  struct Case {
    std::string_view path;
    const Json& message;
    std::string pointer;
    Json value;
  };
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const std::vector<Case> cases{{protocol::kJoinPath, join, "/nproc", -1},
                                {protocol::kJoinPath, join, "/nproc", 0},
                                {protocol::kJoinPath, join, "/nproc", 2'000'000'000},
                                {protocol::kJoinPath, join, "/nproc", largest},
                                {protocol::kJoinPath, join, "/storePort", 65'536},
                                {protocol::kJoinPath, join, "/lastRound", largest},
                                {protocol::kJoinPath, join, "/step", largest},
                                {protocol::kJoinPath, join, "/member/slot", -1},
                                {protocol::kJoinPath, join, "/address", std::string(100'000, 'x')},
                                {protocol::kHeartbeatPath, beat, "/round", largest},
                                {protocol::kHeartbeatPath, beat, "/round", 2'000'000'000},
                                {protocol::kHeartbeatPath, beat, "/world", 2'000'000'000},
                                {protocol::kHeartbeatPath, beat, "/firstRank", -1},
                                {protocol::kHeartbeatPath, beat, "/progress/step", largest},
                                {protocol::kLeavePath, leave, "/failure/detectionSeconds", 1e300},
                                {protocol::kLeavePath, leave, "/reason", 77}};
  for (const Case& c : cases) {
    Json message = c.message;
    message[Json::json_pointer(c.pointer)] = c.value;
    const auto answer =
        transport_->Send({.method = "POST", .target = std::string(c.path), .body = DumpJson(message)}, {});
    ASSERT_TRUE(answer.ok()) << answer.error().ToString();
    EXPECT_EQ(answer->status, 400) << c.pointer << " = " << c.value.dump().substr(0, 40);
    const std::string key = c.pointer.substr(c.pointer.rfind('/') + 1);
    EXPECT_NE(answer->body.find(key), std::string::npos) << answer->body << " does not name " << key;
  }
  const std::string deep = R"({"member":)" + std::string(500'000, '[') + std::string(500'000, ']') + "}";
  EXPECT_EQ(transport_->Send({.method = "POST", .target = "/v1/join", .body = deep}, {})->status, 400);
  const RendezvousView view = service_.View(job_);
  EXPECT_EQ(view.round, 1);
  EXPECT_EQ(view.world_size, 2);
  EXPECT_EQ(view.progress.step, 0);
  EXPECT_TRUE(view.changes.empty());
}

TEST_F(ServiceTest, APodOfAnotherSlotOrSizeThanTheSpecHasIsRefused) {
  service_.Configure(job_, {.min_members = 1, .max_members = 2, .expected_members = 2, .nproc = 4});
  EXPECT_NE(client().Join(RequestOf(7), {}).error().message.find("member.slot: must be below 2"),
            std::string::npos);
  EXPECT_NE(client().Join(RequestOf(1), {}).error().message.find("nproc: must be 4"), std::string::npos);
  EXPECT_EQ(service_.View(job_).waiting, 0);
}

}  // namespace
}  // namespace lockstep::rendezvous

#include "runtime/launch/supervisor/formation_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "runtime/common/base/fields.h"
#include "tests/support/fake_clock.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// Round 5 of two pods: pod 0 with ranks 0 and 1, pod 1 with rank 2.
class FormationHostTest : public ::testing::Test {
 protected:
  struct Answer {
    int status = 0;  // 0: none yet
    protocol::FormAnswer form;
    protocol::WatchAnswer watch;
  };
  using Pending = std::shared_ptr<Answer>;

  FormationHostTest() { host_.Host(5, 3); }

  template <typename Message>
  Pending Send(std::string_view path, const Message& message, std::string key = "") {
    auto answer = std::make_shared<Answer>();
    const http::ServerRequest request{
        .method = "POST",
        .path = std::string(path),
        .headers = {{"authorization", "Bearer " + (key.empty() ? host_.key() : key)}},
        .body = DumpJson(MessageToJson(message))};
    host_.Handle(request, [answer](const http::Response& response) {
      answer->status = response.status;
      if (response.status != 200) return;
      const Json json = ParseJson(response.body).value();
      answer->form = MessageFromJson<protocol::FormAnswer>(json).value();
      answer->watch = MessageFromJson<protocol::WatchAnswer>(json).value();
    });
    return answer;
  }
  Pending Form(int first_rank, int64_t formation = 5, int64_t step = 9) {
    return Send(protocol::kFormPath, protocol::FormRequest{.round = 5,
                                                           .formation = formation,
                                                           .first_rank = first_rank,
                                                           .nproc = first_rank == 0 ? 2 : 1,
                                                           .store_port = 70 + first_rank,
                                                           .step = step});
  }
  Pending Watch(int64_t formation) {
    return Send(protocol::kFormationWatchPath, protocol::FormationWatch{.round = 5, .formation = formation});
  }

  testing::FakeClock clock_;
  FormationHost host_{clock_};
};

TEST_F(FormationHostTest, FormsTheRoundAgainOnceAllOfItAreIn) {
  const Pending first = Form(2, 5, 10);
  EXPECT_EQ(first->status, 0);
  const Pending second = Form(0);
  for (const Pending& answer : {first, second}) {
    ASSERT_EQ(answer->status, 200);
    EXPECT_TRUE(answer->form.formed);
    EXPECT_EQ(answer->form.formation, 6);
    EXPECT_EQ(answer->form.store_port, 70) << "of rank 0";
    EXPECT_EQ(answer->form.newest_step, 10);
  }
}

TEST_F(FormationHostTest, TenThousandMembersFormTheirRoundInAnyOrder) {
  constexpr int kMembers = 10'000;
  std::vector<int> ranks(kMembers);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), std::mt19937(1));
  host_.Host(5, kMembers);
  std::vector<Pending> answers;
  for (const int rank : ranks) {
    EXPECT_TRUE(answers.empty() || answers.back()->status == 0) << "not all members have asked";
    answers.push_back(
        Send(protocol::kFormPath,
             protocol::FormRequest{
                 .round = 5, .formation = 5, .first_rank = rank, .nproc = 1, .store_port = 1 + rank}));
  }
  for (const Pending& answer : answers) {
    ASSERT_EQ(answer->form.formation, 6);
    ASSERT_EQ(answer->form.store_port, 1) << "of rank 0";
  }
}

TEST_F(FormationHostTest, AnAnswerThatWasLostIsGivenAgain) {
  (void)Form(2);
  (void)Form(0);
  const Pending again = Form(2);
  ASSERT_EQ(again->status, 200);
  EXPECT_EQ(again->form.formation, 6);
}

TEST_F(FormationHostTest, FormsItAsOftenAsItBreaks) {
  (void)Form(2);
  (void)Form(0);
  (void)Form(2, 6);
  EXPECT_EQ(Form(0, 6)->form.formation, 7);
}

TEST_F(FormationHostTest, WatchersAreNotifiedOfTheFirstMemberThatWantsAnotherFormation) {
  const Pending watch = Watch(5);
  EXPECT_EQ(watch->status, 0);
  (void)Form(2);
  EXPECT_TRUE(watch->watch.over);
  EXPECT_TRUE(Watch(5)->watch.over) << "it is being formed";
  (void)Form(0);
  EXPECT_TRUE(Watch(5)->watch.over) << "an older one";
  EXPECT_EQ(Watch(6)->status, 0);
}

TEST_F(FormationHostTest, LongPollsEndAndDoNotCountAnyMore) {
  const Pending gone = Form(2);
  const Pending watch = Watch(5);
  clock_.Advance(21s);
  host_.Tick();
  EXPECT_FALSE(gone->form.formed);
  EXPECT_EQ(gone->status, 200);
  EXPECT_EQ(watch->status, 200);
  EXPECT_EQ(Form(0)->status, 0) << "one member is missing";
}

TEST_F(FormationHostTest, KeepsTwoWatchesForEachRankAndAnswersTheOldest) {
  std::vector<Pending> watches;
  for (int i = 0; i < 8; ++i) watches.push_back(Watch(5));
  for (std::size_t i = 0; i < watches.size(); ++i) EXPECT_EQ(watches[i]->status, i < 2 ? 200 : 0) << i;
  EXPECT_FALSE(watches[0]->watch.over);
}

TEST_F(FormationHostTest, RefusesWhoDoesNotBelongToTheRound) {
  EXPECT_EQ(Send(protocol::kFormPath, protocol::FormRequest{.round = 5, .formation = 5}, "guess")->status,
            401);
  EXPECT_EQ(
      Send(protocol::kFormPath, protocol::FormRequest{.round = 4, .formation = 4, .store_port = 70})->status,
      409);
  EXPECT_EQ(Form(0, 6)->status, 409) << "a formation that never was";
  const auto form_as = [this](int first_rank, int nproc) {
    return Send(protocol::kFormPath,
                protocol::FormRequest{
                    .round = 5, .formation = 5, .first_rank = first_rank, .nproc = nproc, .store_port = 70})
        ->status;
  };
  for (const auto& [first_rank, nproc] : std::vector<std::pair<int, int>>{{3, 1}, {2, 2}})
    EXPECT_EQ(form_as(first_rank, nproc), 409) << first_rank << " " << nproc;
  for (const auto& [first_rank, nproc] : std::vector<std::pair<int, int>>{
           {-1, 1}, {0, 0}, {0, -1}, {0, 2'000'000'000}, {2'000'000'000, 2'000'000'000}})
    EXPECT_EQ(form_as(first_rank, nproc), 400) << first_rank << " " << nproc << " in no round";
}

TEST_F(FormationHostTest, ANewRoundEndsWhatWaitsForTheOldOne) {
  const Pending waiting = Form(2);
  host_.Host(6, 3);
  EXPECT_EQ(waiting->status, 200);
  EXPECT_FALSE(waiting->form.formed);
  EXPECT_EQ(Form(0)->status, 409);
}

}  // namespace
}  // namespace lockstep::launch

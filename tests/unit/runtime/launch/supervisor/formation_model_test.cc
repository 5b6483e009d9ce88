// Model checking of two pods, the service and the pods' own formations: in all orders in which messages can
// arrive, be lost or be late, ranks break, and the service stops, ends and restarts, no two rounds, and no
// two formations of a round, have the same number and different members.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <tuple>

#include "runtime/common/base/fields.h"
#include "runtime/common/rendezvous/service.h"
#include "runtime/launch/supervisor/formation_host.h"
#include "runtime/launch/supervisor/supervision.h"
#include "tests/support/fake_clock.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// A request to either server: the answer arrives when the model says so.
struct Exchange {
  std::string path;
  std::string body;
  std::string key;
  bool is_taken = false;
  std::shared_ptr<std::optional<http::Response>> answer = std::make_shared<std::optional<http::Response>>();
};

const protocol::JobIdentity kJob{"ns", "job", "uid"};

class Model {
 public:
  Model() {
    BeginService(1);
    for (int slot : {0, 1}) pods_.push_back(std::make_unique<Pod>(*this, slot));
    // Both train in round 1.
    for (auto& pod : pods_) Ready(*pod);
    for (auto& pod : pods_) Take(pod->join);
    for (auto& pod : pods_) AnswerJoin(*pod);
    // It breaks.
    for (auto& pod : pods_) Break(*pod);
  }

  // All events that can happen next.
  std::vector<std::function<void()>> Choices() {
    std::vector<std::function<void()>> choices;
    for (auto& owner : pods_) {
      Pod& pod = *owner;
      if (pod.join.has_value()) {
        if (!pod.join->is_taken && has_service_) choices.push_back([&] { Take(pod.join); });
        if (pod.join->answer->has_value()) choices.push_back([&] { AnswerJoin(pod); });
        if (lost_ < 3) choices.push_back([&] { ++lost_, LoseJoin(pod); });
      }
      if (pod.form.has_value()) {
        if (!pod.form->is_taken) choices.push_back([&] { TakeForm(pod); });
        if (pod.form->answer->has_value()) choices.push_back([&] { AnswerForm(pod); });
        if (lost_ < 3) choices.push_back([&] { ++lost_, LoseForm(pod); });
      }
      if (pod.formation > 0 && pod.trains && broken_ < 2) choices.push_back([&] { ++broken_, Break(pod); });
      if (has_service_ && beats_ < 1) choices.push_back([&] { ++beats_, Beat(pod); });
    }
    if (restarts_ < 1 && has_service_) choices.push_back([&] { ++restarts_, EndService(); });
    if (!has_service_) choices.push_back([&] { BeginService(recorded_ + 1); });
    return choices;
  }

  [[nodiscard]] const std::string& violation() const { return violation_; }
  [[nodiscard]] bool was_formed_again() const { return was_formed_again_; }

 private:
  struct Pod {
    Pod(Model& model, int number) : slot(number), formations(model.clock_), supervision(SettingsOf(number)) {
      (void)supervision.Start(model.clock_.Steady());
    }
    static SupervisionSettings SettingsOf(int number) {
      const std::string name = "pod-" + std::to_string(number);
      SupervisionSettings settings;
      settings.config.nproc = 1;
      settings.config.in_place_limit = 100;
      settings.config.job = kJob;
      settings.member = {.pod = name, .pod_uid = name + "-uid", .slot = number, .incarnation = "1"};
      settings.address = name;
      return settings;
    }

    int slot;
    FormationHost formations;
    Supervision supervision;
    std::optional<Exchange> join;
    std::optional<Exchange> form;
    int64_t formation = 0;
    bool trains = false;
  };

  void BeginService(int64_t first_round) {
    service_ = std::make_unique<rendezvous::RendezvousService>(
        clock_, [](const auto&, auto done) { done({}); }, [](const auto&) {});
    service_->Configure(
        kJob, {.min_members = 1, .max_members = 2, .expected_members = 2, .first_round = first_round});
    has_service_ = true;
  }
  void EndService() {
    recorded_ = service_->View(kJob).round;
    has_service_ = false;
    service_.reset();  // 503 to all that wait
  }

  void Take(std::optional<Exchange>& exchange) {
    exchange->is_taken = true;
    service_->Handle({.method = "POST", .path = exchange->path, .body = exchange->body},
                     [answer = exchange->answer](http::Response response) { *answer = std::move(response); });
    service_->Tick();
    Check();
  }
  void TakeForm(Pod& pod) {
    pod.form->is_taken = true;
    pods_[0]->formations.Handle(
        {.method = "POST",
         .path = pod.form->path,
         .headers = {{"authorization", "Bearer " + pod.form->key}},
         .body = pod.form->body},
        [answer = pod.form->answer](http::Response response) { *answer = std::move(response); });
  }

  template <typename Message>
  static Result<Message> AnswerOf(const Exchange& exchange) {
    const http::Response& response = **exchange.answer;
    if (response.status != 200) return Error{ErrorCode::kUnavailable, response.body};
    return MessageFromJson<Message>(ParseJson(response.body).value());
  }
  void AnswerJoin(Pod& pod) {
    const auto answer = AnswerOf<protocol::JoinAnswer>(*pod.join);
    pod.join.reset();
    Execute(pod, pod.supervision.On(JoinAnswered{answer}, clock_.Steady()));
  }
  void LoseJoin(Pod& pod) {
    pod.join.reset();
    Execute(pod, pod.supervision.On(JoinAnswered{Error{ErrorCode::kUnavailable, "lost"}}, clock_.Steady()));
  }
  void AnswerForm(Pod& pod) {
    const auto answer = AnswerOf<protocol::FormAnswer>(*pod.form);
    pod.form.reset();
    Execute(pod, pod.supervision.On(FormAnswered{answer}, clock_.Steady()));
  }
  void LoseForm(Pod& pod) {
    pod.form.reset();
    Execute(pod, pod.supervision.On(FormAnswered{Error{ErrorCode::kUnavailable, "lost"}}, clock_.Steady()));
  }
  void Beat(Pod& pod) {
    const protocol::Heartbeat beat = pod.supervision.CurrentHeartbeat();
    std::optional<Exchange> exchange{
        {.path = std::string(protocol::kHeartbeatPath), .body = DumpJson(MessageToJson(beat))}};
    Take(exchange);
    const auto answer = AnswerOf<protocol::WatchAnswer>(*exchange);
    Execute(pod, pod.supervision.On(HeartbeatAnswered{beat.round, answer}, clock_.Steady()));
  }

  void Break(Pod& pod) {
    Execute(pod,
            pod.supervision.On(RankMessage{0, protocol::Broken{.round = pod.formation, .reason = "reset"}},
                               clock_.Steady()));
    Ready(pod);
  }
  void Ready(Pod& pod) {
    pod.trains = false;
    Execute(pod, pod.supervision.On(
                     RankMessage{0, protocol::Ready{.step = pod.formation, .store_port = ++newest_port_}},
                     clock_.Steady()));
  }

  void Execute(Pod& pod, const Actions& actions) {
    bool is_over = false;
    for (const Action& action : actions) {
      if (const auto* join = std::get_if<StartJoin>(&action)) {
        protocol::JoinRequest request = join->request;
        request.form_port = 1;
        request.form_key = pod.formations.key();
        pod.join =
            Exchange{.path = std::string(protocol::kJoinPath), .body = DumpJson(MessageToJson(request))};
      } else if (const auto* form = std::get_if<StartForming>(&action)) {
        pod.form = Exchange{.path = std::string(protocol::kFormPath),
                            .body = DumpJson(MessageToJson(form->request)),
                            .key = form->at.key};
      } else if (const auto* host = std::get_if<HostFormations>(&action)) {
        pod.formations.Host(host->round, host->world);
      } else if (std::holds_alternative<StopAskingMembers>(action)) {
        pod.form.reset();
      } else if (std::holds_alternative<StopPolling>(action) || std::holds_alternative<StartWatch>(action)) {
        pod.join.reset();
      } else if (const auto* sent = std::get_if<SendToRank>(&action)) {
        if (const auto* place = std::get_if<protocol::RankAssignment>(&sent->message)) Enter(pod, *place);
        if (std::holds_alternative<protocol::RoundOver>(sent->message)) is_over = true;
      }
    }
    if (is_over) Ready(pod);
  }

  // A pod enters a formation: what it knows about it must equal what all other pods in it know.
  void Enter(Pod& pod, const protocol::RankAssignment& place) {
    if (place.round <= pod.formation) Fail("to a rank, round", place.round);
    pod.formation = place.round;
    pod.trains = true;
    const int64_t round = pod.supervision.CurrentHeartbeat().round;
    was_formed_again_ |= place.round != round;
    const std::tuple facts(place.world, place.store_host, place.store_port);
    const auto [known, is_new] = formations_.try_emplace({round, place.round}, facts);
    if (!is_new && known->second != facts) Fail("formation", place.round);
    const auto [holder, is_free] = ranks_.try_emplace({round, place.rank}, pod.slot);
    if (!is_free && holder->second != pod.slot) Fail("rank of round", round);
  }
  // The service has assigned a round.
  void Check() {
    const rendezvous::RendezvousView view = service_->View(kJob);
    if (view.world_size == 0 || !IsKnownWhole(view)) return;
    const auto [known, is_new] = rounds_.try_emplace(view.round, view.members);
    if (!is_new && known->second != view.members) Fail("round", view.round);
  }
  // Members report a round that was taken over one at a time.
  static bool IsKnownWhole(const rendezvous::RendezvousView& view) {
    return static_cast<int>(view.members.size()) == view.world_size;
  }
  void Fail(const std::string& what, int64_t number) {
    violation_ = what + " " + std::to_string(number) + " is there twice";
  }

  testing::FakeClock clock_;
  std::unique_ptr<rendezvous::RendezvousService> service_;
  bool has_service_ = false;
  int64_t recorded_ = 0;
  std::vector<std::unique_ptr<Pod>> pods_;
  int newest_port_ = 0;
  int lost_ = 0;
  int broken_ = 0;
  int beats_ = 0;
  int restarts_ = 0;
  std::map<int64_t, std::vector<std::string>> rounds_;
  std::map<std::pair<int64_t, int64_t>, std::tuple<int, std::string, int>> formations_;
  std::map<std::pair<int64_t, int>, int> ranks_;
  bool was_formed_again_ = false;
  std::string violation_;
};

// Replays a sequence of choices from the beginning; `choose` selects at each step.
template <typename Choose>
std::unique_ptr<Model> Play(std::size_t steps, Choose choose) {
  auto model = std::make_unique<Model>();
  for (std::size_t step = 0; step < steps && model->violation().empty(); ++step) {
    const auto choices = model->Choices();
    if (choices.empty()) break;
    choices[choose(step, choices.size())]();
  }
  return model;
}

TEST(FormationModelTest, AllOrdersOfTheFirstSteps) {
  constexpr std::size_t kSteps = 5;
  std::vector<std::size_t> path;
  std::vector<std::size_t> widths;
  int64_t plays = 0;
  do {
    widths.clear();
    const auto model = Play(kSteps, [&](std::size_t step, std::size_t width) {
      if (step == path.size()) path.push_back(0);
      widths.push_back(width);
      return path[step];
    });
    ASSERT_EQ(model->violation(), "") << ::testing::PrintToString(path);
    ++plays;
    path.resize(widths.size());
    while (!path.empty() && ++path.back() == widths[path.size() - 1]) path.pop_back();
  } while (!path.empty());
  EXPECT_GT(plays, 1000);
}

TEST(FormationModelTest, LongOrdersAtRandom) {
  constexpr std::size_t kSteps = 40;
  std::mt19937 dice(1);
  int formed_again = 0;
  for (int play = 0; play < 1500; ++play) {
    std::vector<std::size_t> path;
    const auto model = Play(kSteps, [&](std::size_t, std::size_t width) {
      return path.emplace_back(std::uniform_int_distribution<std::size_t>(0, width - 1)(dice));
    });
    ASSERT_EQ(model->violation(), "") << ::testing::PrintToString(path);
    formed_again += model->was_formed_again() ? 1 : 0;
  }
  EXPECT_GT(formed_again, 300) << "or this shows nothing";
}

}  // namespace
}  // namespace lockstep::launch

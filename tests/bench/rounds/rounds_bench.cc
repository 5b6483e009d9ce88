// How long survivors take from a round in which a peer hangs to a sum of the next round, in the same processes:
// `comm::Communicator`, which makes a Gloo group for each round, compared with `reconfigure` of c10d's Gloo group. Then what
// `reconfigure` does when nobody ends the old waits first, when a peer hangs, and when the store's process hangs or dies.
//
// rounds_bench [TURNS]    prints medians, least and most

#include <c10/util/Exception.h>
#include <signal.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>

#include "runtime/comm/communicator.h"
#include "tests/support/forked_process.h"

namespace {

using lockstep::comm::Communicator;
using lockstep::comm::Listener;
using lockstep::comm::Place;
using lockstep::testing::ForkedProcess;
using lockstep::testing::LineChannel;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPatience{60'000};
constexpr milliseconds kShort{1'000};  // the time-out of a connect that is to fail
constexpr milliseconds kLong{10'000};  // what takes longer is taken for a hang
constexpr int kUnusedTag = 0x5afe;
constexpr const char* kLocal = "127.0.0.1";

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<at::Tensor> Values() { return {at::ones({100'000}, at::kFloat)}; }

// In a child, too: the bench then reports that an answer is missing.
[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "rounds_bench: %s\n", what.c_str());
  std::_Exit(1);
}

// "ok" or the beginning of what it threw, and after how long.
std::string Outcome(const std::function<void()>& call) {
  const auto start = Clock::now();
  std::string text = "ok";
  try {
    call();
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  }
  return text.substr(0, std::min<std::size_t>(text.find('\n'), 100)) + " after " +
         std::to_string(std::lround(MillisecondsSince(start))) + " ms";
}

// For a call that may hang. Its thread and what it uses are then left behind: see Try.
std::string BoundedOutcome(const std::function<void()>& call) {
  auto outcome = std::make_shared<std::promise<std::string>>();
  auto answer = outcome->get_future();
  std::thread([call, outcome] { outcome->set_value(Outcome(call)); }).detach();
  return answer.wait_for(kLong) == std::future_status::ready ? answer.get() : "hangs (10 s)";
}

// One of the two systems in one rank.
class Rounds {
 public:
  virtual ~Rounds() = default;
  virtual void Enter(int64_t round, int rank, int world) = 0;
  virtual bool Sum() = 0;
  virtual void Abort() = 0;
};

class OwnRounds final : public Rounds {
 public:
  explicit OwnRounds(std::vector<Listener>& listeners) : listeners_(listeners) {}

  void Enter(int64_t round, int rank, int world) override {
    communicator_.reset();
    Listener& listener = listeners_[static_cast<std::size_t>(round)];
    const Place place{.round = round,
                      .rank = rank,
                      .world = world,
                      .address = kLocal,
                      .store_host = kLocal,
                      .store_port = listener.port()};
    auto connected =
        Communicator::Connect(place, std::move(listener), {.collective = std::chrono::minutes(1)});
    if (!connected.ok()) Fail(connected.error().ToString());
    communicator_ = *connected;
  }
  bool Sum() override {
    auto values = Values();
    return communicator_->SumInPlace(values[0]).ok();
  }
  void Abort() override { communicator_->Abort(); }

 private:
  std::vector<Listener>& listeners_;
  std::shared_ptr<Communicator> communicator_;
};

class ReconfiguredRounds final : public Rounds {
 public:
  // The store is not a rank's: it outlives each of them.
  ReconfiguredRounds(int store_port, int rank, int world)
      : store_port_(store_port), rank_(rank), world_(world) {
    c10d::TCPStoreOptions store;
    store.port = static_cast<uint16_t>(store_port);
    store.waitWorkers = false;
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->enable_reconfigure = true;
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(kLocal)};
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::TCPStore>(kLocal, store),
                                                         rank, world, options);
  }

  void Enter(int64_t round, int /*rank*/, int world) override { Reconfigure(round, world, std::nullopt); }
  // The first `world` ranks of the newest round stay, in their order.
  void Reconfigure(int64_t round, int world, std::optional<milliseconds> limit) {
    std::vector<std::string> handles;
    for (int rank = 0; rank < world; ++rank)
      handles.push_back("gloo:" + std::to_string(rank) + ":" + std::to_string(round_) + ":" +
                        std::to_string(rank) + ":" + kLocal + ":" + std::to_string(store_port_));
    group_->reconfigure({.uuid = round, .handles = handles, .timeout = limit})->wait();
    round_ = round;
    world_ = world;
  }
  bool Sum() override {
    try {
      auto values = Values();
      return group_->allreduce(values)->wait();
    } catch (const std::exception&) {
      return false;
    }
  }
  // As Communicator does it: c10d's own abort of Gloo does nothing (see AbortOfC10d).
  void Abort() override {
    for (int peer = 0; peer < world_; ++peer) {
      if (peer == rank_) continue;
      try {
        std::vector<at::Tensor> landing = {at::empty({1}, at::kByte)};
        group_->recv(landing, peer, kUnusedTag)->wait(milliseconds(1));
      } catch (const std::exception&) {
      }
    }
  }
  c10d::ProcessGroupGloo& group() { return *group_; }

 private:
  const int store_port_;
  const int rank_;
  int world_;
  int64_t round_ = -1;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

ForkedProcess StartStore(Listener& listener) {
  return ForkedProcess([&](LineChannel& parent) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(listener.port());
    options.isServer = true;
    options.waitWorkers = false;
    options.masterListenFd = listener.Release();
    const c10d::TCPStore store(kLocal, options);
    (void)parent.Receive(kPatience);
    return 0;
  });
}

std::string Answer(ForkedProcess& process) {
  const auto line = process.channel().Receive(kPatience);
  if (!line.has_value()) Fail("a rank gave no answer");
  return *line;
}

void Show(const char* what, int survivors, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("%-34s %d survivors: %6.1f ms (%.1f to %.1f), %zu turns\n", what, survivors,
              values[values.size() / 2], values.front(), values.back(), values.size());
  std::fflush(stdout);
}

using MakeRounds = std::function<std::unique_ptr<Rounds>(int rank)>;

// From the news that round 1 is broken until all survivors have a sum of round 2. The last rank hangs.
double NextRound(int survivors, const MakeRounds& make) {
  std::vector<ForkedProcess> ranks;
  for (int rank = 0; rank <= survivors; ++rank) {
    ranks.emplace_back([&, rank](LineChannel& parent) {
      const auto rounds = make(rank);
      rounds->Enter(0, rank, survivors + 1);
      if (!rounds->Sum()) Fail("no sum in the first round");
      parent.Send("connected");
      if (rank == survivors) ::raise(SIGSTOP);
      std::jthread control([&] {
        (void)parent.Receive(kPatience);
        rounds->Abort();
      });
      if (rounds->Sum()) Fail("a sum without a peer");
      control.join();
      rounds->Enter(1, rank, survivors);
      parent.Send(rounds->Sum() ? "summed" : "failed");
      (void)parent.Receive(kPatience);
      return 0;
    });
  }
  for (auto& rank : ranks) (void)Answer(rank);
  // All wait for the one that hangs.
  if (ranks[0].channel().Receive(milliseconds(100)).has_value()) Fail("rank 0 did not wait");
  const auto start = Clock::now();
  for (int rank = 0; rank < survivors; ++rank) ranks[static_cast<std::size_t>(rank)].channel().Send("broken");
  for (int rank = 0; rank < survivors; ++rank)
    if (Answer(ranks[static_cast<std::size_t>(rank)]) != "summed") Fail("no sum in the second round");
  return MillisecondsSince(start);
}

void CompareNextRounds(int turns) {
  for (const int survivors : {2, 4}) {
    std::vector<double> own;
    std::vector<double> reconfigured;
    for (int turn = 0; turn < turns; ++turn) {
      std::vector<Listener> listeners;
      for (int i = 0; i < 3; ++i) listeners.push_back(std::move(Listener::Open(kLocal)).value());
      own.push_back(NextRound(survivors, [&](int) { return std::make_unique<OwnRounds>(listeners); }));
      const int port = listeners[2].port();
      const ForkedProcess store = StartStore(listeners[2]);
      reconfigured.push_back(NextRound(survivors, [&](int rank) {
        return std::make_unique<ReconfiguredRounds>(port, rank, survivors + 1);
      }));
    }
    Show("Communicator", survivors, own);
    Show("our abort, then reconfigure", survivors, reconfigured);
  }
}

struct Trial {
  Listener listener = std::move(Listener::Open(kLocal)).value();
  int port = listener.port();
  ForkedProcess store = StartStore(listener);
};

// `body` runs in ranks 0 and 1 of 3; rank 2 hangs after the first sum. `meanwhile` runs when all are connected.
// Prints what rank 0 answers.
void Try(const char* what, const std::function<std::string(ReconfiguredRounds&, int rank)>& body,
         const std::function<void(Trial&, std::vector<ForkedProcess>&)>& meanwhile = {}) {
  Trial trial;
  std::vector<ForkedProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank](LineChannel& parent) {
      ReconfiguredRounds rounds(trial.port, rank, 3);
      rounds.Enter(0, rank, 3);
      if (!rounds.Sum()) Fail("no sum in the first round");
      parent.Send("connected");
      if (rank == 2) ::raise(SIGSTOP);
      (void)parent.Receive(kPatience);
      parent.Send(body(rounds, rank));
      (void)parent.Receive(kPatience);  // until it is killed: its group may not end by itself
      return 0;
    });
  }
  for (auto& rank : ranks) (void)Answer(rank);
  if (meanwhile) meanwhile(trial, ranks);
  for (int rank : {0, 1}) ranks[static_cast<std::size_t>(rank)].channel().Send("go");
  std::printf("%s: %s\n", what, Answer(ranks[0]).c_str());
  std::fflush(stdout);
}

std::string AbortOfC10d(ReconfiguredRounds& rounds, int) {
  auto values = Values();
  const auto work = rounds.group().allreduce(values);
  std::this_thread::sleep_for(milliseconds(100));  // c10d does not say when a sum has begun to wait
  const std::string aborted = Outcome([&] { rounds.group().abort(); });
  return "abort: " + aborted + "; the wait: " + Outcome([&] { work->wait(milliseconds(3'000)); });
}

// `count` sums wait for a peer that hangs; nobody aborts them.
std::string ReconfigureDuring(ReconfiguredRounds& rounds, int count) {
  std::vector<std::vector<at::Tensor>> values(static_cast<std::size_t>(count), Values());
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (auto& each : values) works.push_back(rounds.group().allreduce(each));
  std::this_thread::sleep_for(milliseconds(100));  // as above
  std::string text = "reconfigure: " + Outcome([&] { rounds.Reconfigure(1, 2, std::nullopt); });
  auto next = Values();
  const auto sum = rounds.group().allreduce(next);
  text += "; a sum of the next round: " + Outcome([&] { sum->wait(milliseconds(3'000)); });
  const auto ended =
      std::count_if(works.begin(), works.end(), [](const auto& work) { return work->isCompleted(); });
  return text + "; old waits that ended: " + std::to_string(ended) + " of " + std::to_string(count);
}

void ShowHangs() {
  Try("c10d's abort", AbortOfC10d);
  for (const int count : {1, 2})
    Try(count == 1 ? "reconfigure while 1 sum waits" : "reconfigure while 2 sums wait",
        [count](ReconfiguredRounds& rounds, int) { return ReconfigureDuring(rounds, count); });
  Try("a peer of the next round hangs, limit 1 s", [](ReconfiguredRounds& rounds, int) {
    std::string text = BoundedOutcome([&] { rounds.Reconfigure(1, 3, kShort); });
    return text + "; then without it: " + BoundedOutcome([&] {
             rounds.Reconfigure(2, 2, kShort);
             if (!rounds.Sum()) throw std::runtime_error("no sum");
           });
  });
  const auto reconfigure = [](ReconfiguredRounds& rounds, int) {
    return BoundedOutcome([&] { rounds.Reconfigure(1, 2, kShort); });
  };
  Try("the store's process hangs, limit 1 s", reconfigure,
      [](Trial& trial, std::vector<ForkedProcess>&) { trial.store.Signal(SIGSTOP); });
  Try("the store's process is killed", reconfigure, [](Trial& trial, std::vector<ForkedProcess>&) {
    trial.store.Signal(SIGKILL);
    (void)trial.store.Wait(kPatience);
  });
  Try("what else Gloo has", [](ReconfiguredRounds& rounds, int) {
    const auto word = [](bool supported) { return supported ? std::string("yes") : std::string("no"); };
    return "shrink " + word(rounds.group().supportsShrinking()) + ", abort hooks " +
           word(rounds.group().supportsAbortHooks());
  });
}

}  // namespace

int main(int argc, char** argv) {
  CompareNextRounds(argc > 1 ? std::atoi(argv[1]) : 20);
  ShowHangs();
}

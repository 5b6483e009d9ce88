// How long a round of many members takes to form, and how long until all know of deaths that the pod watch
// reports: the operator's rendezvous server with TLS in this process, the members in another.
//
// rendezvous_bench [MEMBERS [DEATHS]]    10000 and 100 unless given; prints times, CPU seconds and memory of
// the service

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "operator/rendezvous/certificates.h"
#include "operator/rendezvous/host.h"
#include "operator/rendezvous/pod_feed.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/open_files.h"
#include "tests/bench/rendezvous/members.h"

namespace lockstep::bench {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 180s;
constexpr auto kSteadyTime = 10s;
constexpr std::size_t kAnyNumber = 1'000'000;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "rendezvous_bench: %s\n", what.c_str());
  std::exit(1);
}

template <typename Condition>
void WaitUntil(const char* what, const Scoreboard& board, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      Fail(std::string("not in time: ") + what + " (" + std::to_string(board.connected) + " connected, " +
           std::to_string(board.placed.count) + " placed, " + std::to_string(board.notified.count) +
           " notified)");
    }
    if (board.failures > 0) Fail(std::to_string(board.failures) + " requests failed before: " + what);
    std::this_thread::sleep_for(2ms);
  }
}

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ResidentMegabytes() {
  const auto statm = ReadFile("/proc/self/statm");
  const long pages = statm.ok() ? std::strtol(statm->c_str() + statm->find(' '), nullptr, 10) : 0;
  return static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

double SecondsBetween(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) / 1e9;
}

void RequireOpenFiles(std::size_t files) {
  const std::size_t allowed = RaiseOpenFileLimit();
  if (allowed < files)
    Fail("needs " + std::to_string(files) + " open files, allowed are " + std::to_string(allowed));
}

kube::ObjectChange DeletionOf(int slot) {
  const std::string pod = "bench-worker-" + std::to_string(slot);
  const Json owners = Json::array({{{"apiVersion", "lockstep.dev/v1alpha1"},
                                    {"kind", "DistributedTrainingJob"},
                                    {"name", "bench"},
                                    {"uid", "bench-uid"},
                                    {"controller", true}}});
  Json json = {{"metadata",
                {{"namespace", "bench"}, {"name", pod}, {"uid", pod + "-uid"}, {"ownerReferences", owners}}},
               {"status", {{"phase", "Running"}}}};
  return {.before = std::make_shared<const Json>(std::move(json)), .after = nullptr};
}

// The service as the operator hosts it, but for TokenReview: the API server is not what is measured.
class Service {
 public:
  explicit Service(const Plan& plan, Scoreboard& board) : plan_(plan), board_(board) {
    service_.Configure(
        job_,
        {.min_members = plan.members / 2, .max_members = plan.members, .expected_members = plan.members});
    auto identity = rendezvous::MakeServerIdentity({"localhost"}, clock_.Now());
    if (!identity.ok()) Fail(identity.error().ToString());
    // All members have one address here, and the last one waits before it joins.
    const http::ConnectionLimits limits{
        .per_peer = kAnyNumber, .untrusted_per_peer = kAnyNumber, .until_trusted = kDeadline};
    if (const auto used = certificate_.Use(identity->certificate, identity->key); !used.ok())
      Fail(used.error().ToString());
    auto host = rendezvous::Host::Start({"127.0.0.1:0", &certificate_, limits}, service_);
    if (!host.ok()) Fail(host.error().ToString());
    host_ = std::move(host).value();
    std::strncpy(board.ca.data(), identity->ca.c_str(), board.ca.size() - 1);
    board.port = host_->port();
  }

  void Measure() {
    FormRound();
    Idle();
    Bury();
  }

 private:
  void FormRound() {
    const int64_t begin = NowNs();
    WaitUntil("all members but one wait for the round", board_, [&] {
      return board_.connected == ConnectionsOf(plan_.members) && board_.present == plan_.members - 1;
    });
    std::printf("%d members, %d TLS connections\n", plan_.members, ConnectionsOf(plan_.members));
    std::printf("connecting and joining: %.2f s, CPU of the service %.2f s, memory %.0f MB\n",
                SecondsBetween(begin, NowNs()), CpuSeconds(), ResidentMegabytes());
    const double cpu = CpuSeconds();
    board_.last_may_join = true;
    WaitUntil("all have a place", board_, [&] { return board_.placed.count == plan_.members; });
    std::printf("last join -> all have their place in the round: %.3f s, CPU %.2f s\n",
                SecondsBetween(board_.last_join_ns, board_.placed.newest_ns), CpuSeconds() - cpu);
  }

  void Idle() {
    const double cpu = CpuSeconds();
    const int64_t beats = board_.beats;
    std::this_thread::sleep_for(kSteadyTime);
    std::printf("training: %.0f heartbeats/s, %.2f CPUs, memory %.0f MB\n",
                static_cast<double>(board_.beats - beats) / Seconds(kSteadyTime).count(),
                (CpuSeconds() - cpu) / Seconds(kSteadyTime).count(), ResidentMegabytes());
  }

  void Bury() {
    const double cpu = CpuSeconds();
    const int survivors = plan_.members - plan_.deaths;
    const int64_t begin = NowNs();
    for (int slot = 0; slot < plan_.members; ++slot) {
      if (plan_.Dies(slot)) feed_.OnChange(DeletionOf(slot));
    }
    const double reported = SecondsBetween(begin, NowNs());
    WaitUntil("the survivors know", board_, [&] { return board_.notified.count == survivors; });
    WaitUntil("the survivors have a place", board_, [&] { return board_.placed_again.count == survivors; });
    std::printf("%d deaths reported in %.3f s; first report -> all %d survivors know: %.3f s\n", plan_.deaths,
                reported, survivors, SecondsBetween(begin, board_.notified.newest_ns));
    std::printf("first report -> all survivors have their place in the next round: %.3f s, CPU %.2f s\n",
                SecondsBetween(begin, board_.placed_again.newest_ns), CpuSeconds() - cpu);
    std::printf("in all: CPU of the service %.2f s, memory %.0f MB\n", CpuSeconds(), ResidentMegabytes());
  }

  const Plan& plan_;
  Scoreboard& board_;
  const SystemClock clock_;
  const protocol::JobIdentity job_{"bench", "bench", "bench-uid"};
  rendezvous::RendezvousService service_{clock_, [](const auto&, auto done) { done({}); },
                                         [](const protocol::JobIdentity&) {}};
  const kube::Store jobs_;
  rendezvous::PodFeed feed_{jobs_, service_};
  http::ServerCertificate certificate_;
  std::unique_ptr<rendezvous::Host> host_;
};

int RunChild(const Plan& plan, Scoreboard& board) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  WaitUntil("the service listens", board, [&] { return board.port != 0; });
  RunMembers(plan, board);
  std::_Exit(0);  // closing thousands of connections one by one is nobody's business
}

int Main(int argc, char** argv) {
  Plan plan;
  if (argc > 1) plan.members = std::atoi(argv[1]);
  if (argc > 2) plan.deaths = std::atoi(argv[2]);
  if (plan.members < 2 || plan.deaths < 1 || plan.deaths > plan.members / 2) {
    Fail("usage: rendezvous_bench [MEMBERS [DEATHS]], at most half of the members");
  }
  RequireOpenFiles(static_cast<std::size_t>(ConnectionsOf(plan.members)) + 100);
  Scoreboard& board = MapScoreboard();
  const pid_t child = ::fork();  // before the first thread
  if (child == 0) return RunChild(plan, board);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("%u processors\n", std::thread::hardware_concurrency());
  Service(plan, board).Measure();
  board.over = true;
  ::waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) { return lockstep::bench::Main(argc, argv); }

// The operator on a real API server, with a network that fails at its writes. Whatever happens, the job ends
// up as in the run that nothing disturbed, with as many objects made and deleted.
//
// Each write of each scenario meets some of the faults, others with another LOCKSTEP_TEST_SEED, which is
// printed; with LOCKSTEP_TEST_ALL=1 it meets all of them.
//
// The test is the administrator of KUBECONFIG. The operators are the account of LOCKSTEP_FAULTS_KUBECONFIG, with
// the chart's roles in LOCKSTEP_FAULTS_NAMESPACES; faults_test.py makes all of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/cpprest_transport.h"
#include "tests/integration/operator/fault_transport.h"
#include "tests/integration/operator/scenarios.h"
#include "tests/integration/operator/site.h"
#include "tests/support/eventually.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

constexpr Milliseconds kPoll{5};
constexpr Milliseconds kQuiet{200};          // so long without a write: it is at rest, …
constexpr Milliseconds kSurelyQuiet{2'000};  // … where nothing says what the end is to be, …
constexpr int kSlowestAnswers = 20;          // … and so many times its slowest write, on a busy machine
// Attempts at one write beyond the undisturbed number: no hot loop. A round that fails is tried again after
// 5 ms, and after twice as long each time (controller/backoff.h): so many take 20 s, while a cache is stale.
constexpr int kMostRepeats = 12;
constexpr int kSites = 6;                // operators at once
constexpr int kJobs = 12;                // jobs at once of one operator
constexpr unsigned kFaultsOfAWrite = 2;  // of the five that strike a single write
constexpr Milliseconds kStill{10'000};

struct Disturbance {
  Fault fault = Fault::kNone;
  int write = 0;
  bool past = false;   // after a crash: the next operator's caches begin in the past
  bool chaos = false;  // watches break at random
  unsigned seed = 0;

  [[nodiscard]] std::string ToString() const {
    const bool each = write == FaultTransport::kEachWrite;
    return std::string(FaultName(fault)) + (each ? " at each write" : " at write " + std::to_string(write)) +
           (past ? ", then a stale cache" : "") + (chaos ? ", watches break" : "") + ", seed " +
           std::to_string(seed);
  }
};

struct Outcome {
  Json end;
  Counts changes;
  Counts attempts_of;
  int writes = 0;
  int strikes = 0;
};

// One run of a scenario; `failure` says what went wrong.
class Trial {
 public:
  Trial(Site& site, const std::string& job, const Scenario& scenario, const Disturbance& disturbance,
        const Outcome* quiet)
      : site_(site), job_(site.home, job), scenario_(scenario), disturbance_(disturbance), quiet_(quiet) {}

  Outcome Go() {
    Outcome outcome;
    JobWrites before;
    if (All(scenario_.before) && AwaitRest()) {
      before = writes();
      Disturb();
      // A pause may come after the last step was seen to be done, with one of the writes that follow it.
      if (All(scenario_.steps) && AwaitEnd() && site_.has_paused() && EndPause()) AwaitEnd();
    }
    const JobWrites after = writes();
    outcome.end = job_.Canonical();
    outcome.writes = after.attempts - before.attempts;
    outcome.strikes = after.strikes;
    outcome.changes = Since(before.changes, after.changes);
    outcome.attempts_of = Since(before.attempts_of, after.attempts_of);
    site_.RememberThePast({});
    if (quiet_ != nullptr) Finish();
    if (site_.has_paused()) EndPause();  // or the next job's pause would leave the site without an operator
    return outcome;
  }
  std::string failure;

 private:
  [[nodiscard]] JobWrites writes() const { return site_.ledger.of(job_.name()); }
  [[nodiscard]] bool IsAtRest() const {
    const JobWrites now = writes();
    return now.silence() > std::max(quiet_ ? kQuiet : kSurelyQuiet, kSlowestAnswers * now.slowest);
  }
  void Disturb() {
    if (disturbance_.fault != Fault::kNone) {
      site_.network().Arm(job_.name(), disturbance_.write, disturbance_.fault);
    }
    if (!disturbance_.past) return;
    site_.RememberThePast([this] {
      const std::vector<std::string> versions = writes().versions;
      return versions.empty() ? std::string() : versions[disturbance_.seed % versions.size()];
    });
  }
  bool Fail(const std::string& what) {
    if (failure.empty()) failure = scenario_.name + ", " + disturbance_.ToString() + ": " + what;
    return false;
  }
  template <typename Condition>
  bool Await(Condition condition) {
    return Eventually(
        [&] {
          site_.Tend();
          std::this_thread::sleep_for(kPoll);  // the conditions compare whole documents
          return condition();
        },
        kDeadline);
  }
  // Up to the first that is not done.
  bool All(const std::vector<Step>& steps) {
    return std::all_of(steps.begin(), steps.end(), [this](const Step& step) {
      step.act(job_);
      return Await([&] { return step.is_done(job_); }) ||
             Fail("a step was not done: " + DumpJson(job_.Canonical()));
    });
  }
  bool AwaitRest() {
    return Await([&] { return IsAtRest(); }) || Fail("it writes and writes");
  }
  bool EndPause() { return AwaitRest() && (site_.EndPause() || Fail("the paused write was not sent")); }
  bool AwaitEnd() {
    if (quiet_ != nullptr && !Await([&] { return IsAtRest() && job_.Canonical() == quiet_->end; })) {
      return Fail("another end: " + DumpJson(Json::diff(quiet_->end, job_.Canonical())));
    }
    return AwaitRest();
  }
  void Finish() {
    job_.Delete();
    if (!Await([&] { return job_.job().is_null() && job_.pods().empty(); })) Fail("it cannot be deleted");
  }

  Site& site_;
  TestJob job_;
  const Scenario& scenario_;
  const Disturbance disturbance_;
  const Outcome* quiet_;
};

// The disturbances of a write that are distinguished when some are chosen.
enum class Strike { kCrashBefore, kCrashAfter, kCrashThenPast, kPause, kLostAnswer };
constexpr unsigned kStrikes = 5;

Disturbance StrikeAt(Strike strike, int write, unsigned seed) {
  static constexpr std::array<Fault, kStrikes> kFaults = {
      Fault::kCrashBefore, Fault::kCrashAfter, Fault::kCrashAfter, Fault::kPause, Fault::kLostAnswer};
  return {.fault = kFaults.at(static_cast<std::size_t>(strike)),
          .write = write,
          .past = strike == Strike::kCrashThenPast,
          .seed = seed + static_cast<unsigned>(write) * 7919U};
}

// Whether this run of the program has the strike at this write: two of a ring, from where the seed says.
bool IsChosen(Strike strike, std::size_t scenario, int write, unsigned seed) {
  if (!EnvOr("LOCKSTEP_TEST_ALL", "").empty()) return true;
  const auto begin = seed + static_cast<unsigned>(scenario) + static_cast<unsigned>(write) * kFaultsOfAWrite;
  return (static_cast<unsigned>(strike) + kStrikes - begin % kStrikes) % kStrikes < kFaultsOfAWrite;
}

struct Case {
  const Scenario* scenario;
  Disturbance disturbance;
};

// Shared by all tests: the way to the API server, the operators, and what each scenario comes to by itself.
class Cluster : public ::testing::Environment {
 public:
  void SetUp() override {
    const std::string kubeconfig = EnvOr("LOCKSTEP_FAULTS_KUBECONFIG", "");
    if (kubeconfig.empty()) return;
    // Each of the many connections would read hundreds of authorities, none of which this API server needs.
    ::setenv("SSL_CERT_FILE", "/dev/null", 1);
    log::SetLevel("error");
    http::InitializeHttpThreads(4);
    admin_.emplace(EnvOr("KUBECONFIG", ""));
    operators_.emplace(kubeconfig);
    namespaces_ = Split(EnvOr("LOCKSTEP_FAULTS_NAMESPACES", ""), ',');
    seed = static_cast<unsigned>(std::stoul(EnvOr("LOCKSTEP_TEST_SEED", "7")));
    std::cout << "LOCKSTEP_TEST_SEED=" << seed << "\n";
    RunQuietly();
    if (::testing::Test::HasFailure()) FAIL() << "no run without faults to compare with";
    for (int i = 0; i < kSites; ++i) sites.push_back(NewSite());
  }
  void TearDown() override {
    sites.clear();
    quiet_site.reset();
    operators_.reset();
    admin_.reset();
  }

  [[nodiscard]] bool is_there() const { return operators_.has_value(); }
  [[nodiscard]] std::unique_ptr<Site> NewSite() {
    return std::make_unique<Site>(*admin_, *operators_, namespaces_.at(sites_++));
  }

  // Of one scenario, in a site that nobody else disturbs.
  Outcome RunOnce(Site& site, const Case& which, const Outcome* expected) {
    Trial trial(site, "job" + std::to_string(++jobs_), *which.scenario, which.disturbance, expected);
    Outcome outcome = trial.Go();
    EXPECT_EQ(trial.failure, "");
    return outcome;
  }

  const std::vector<Scenario> scenarios = AllScenarios();
  std::map<std::string, Outcome> quiet;  // by scenario
  std::unique_ptr<Site> quiet_site;      // where they were run, and the jobs still are
  std::vector<std::unique_ptr<Site>> sites;
  unsigned seed = 0;

 private:
  void RunQuietly() {
    quiet_site = NewSite();
    for (const Scenario& scenario : scenarios) quiet[scenario.name];
    std::vector<std::jthread> threads;
    for (const Scenario& scenario : scenarios) {
      threads.emplace_back([&] { quiet.at(scenario.name) = RunOnce(*quiet_site, {&scenario, {}}, nullptr); });
    }
  }

  std::optional<Account> admin_;
  std::optional<Account> operators_;
  std::vector<std::string> namespaces_;
  std::size_t sites_ = 0;
  std::atomic<int> jobs_ = 0;
};

Cluster& TheCluster() {
  static auto& cluster = *static_cast<Cluster*>(::testing::AddGlobalTestEnvironment(new Cluster));
  return cluster;
}
[[maybe_unused]] const Cluster& kRegistered = TheCluster();

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TheCluster().is_there()) GTEST_SKIP() << "KUBECONFIG is not set";
    for (const auto& [name, outcome] : TheCluster().quiet) ASSERT_GT(outcome.writes, 0) << name;
  }

  // A leader that was paused may send one write that another has made and undone meanwhile. One whose cache
  // still contains a deleted job may create what the garbage collector then deletes, but no pod.
  static int SpareOf(const Disturbance& disturbance, std::string_view kind) {
    const bool is_collected = kind == "+services" || kind == "+configmaps";
    return disturbance.fault == Fault::kPause || (disturbance.past && is_collected) ? 1 : 0;
  }

  static void ExpectSame(const Outcome& outcome, const Outcome& quiet, const Case& which) {
    const Disturbance& disturbance = which.disturbance;
    const std::string what = which.scenario->name + ", " + disturbance.ToString();
    for (const auto& kind : {"+pods", "-pods", "+services", "+configmaps", "-distributedtrainingjobs"}) {
      const int count = CountOf(outcome.changes, kind);
      const int expected = CountOf(quiet.changes, kind);
      EXPECT_GE(count, expected) << kind << ": " << what;
      EXPECT_LE(count, expected + SpareOf(disturbance, kind)) << kind << ": " << what;
    }
    // Watches that break leave time for more attempts.
    const bool is_often = disturbance.chaos || disturbance.write == FaultTransport::kEachWrite;
    for (const auto& [write, attempts] : outcome.attempts_of) {
      const int most = CountOf(quiet.attempts_of, write) + (is_often ? 4 : 1) * kMostRepeats;
      EXPECT_LE(attempts, most) << write << ": " << what;
    }
  }

  struct Progress {
    std::atomic<std::size_t> next = 0;
    std::atomic<std::size_t> struck = 0;
  };

  // Whether its fault has struck.
  static bool RunCase(Site& site, const Case& which) {
    const Outcome& quiet = TheCluster().quiet.at(which.scenario->name);
    const Outcome outcome = TheCluster().RunOnce(site, which, &quiet);
    ExpectSame(outcome, quiet, which);
    // Only a fault whose write never came may escape; one write may pass before it is armed.
    if (which.disturbance.fault != Fault::kNone && outcome.strikes == 0) {
      EXPECT_LE(outcome.writes, which.disturbance.write)
          << which.scenario->name << ", " << which.disturbance.ToString() << ": it did not strike";
    }
    return outcome.strikes > 0;
  }

  static void RunEach(Site& site, const std::vector<Case>& cases, Progress& progress) {
    // Each step that is not done costs its deadline: one such run says enough.
    for (std::size_t i = progress.next++; i < cases.size() && !HasFailure(); i = progress.next++) {
      const bool is_armed = cases[i].disturbance.fault != Fault::kNone;
      // A disturbed run can have fewer writes than the quiet one, and so escape its fault: it gets another try.
      const bool has_struck = RunCase(site, cases[i]) || (is_armed && RunCase(site, cases[i]));
      if (has_struck) ++progress.struck;
    }
  }

  // How many escape, each of which was tried twice, depends on how many writes the quiet run had, which are
  // more on a busy machine.
  static void ExpectStruck(const std::vector<Case>& cases, const Progress& progress) {
    if (HasFailure()) return;  // not all were run
    const auto armed = static_cast<std::size_t>(std::count_if(
        cases.begin(), cases.end(), [](const Case& one) { return one.disturbance.fault != Fault::kNone; }));
    std::cout << cases.size() << " runs, " << progress.struck << " of " << armed << " faults struck\n";
    EXPECT_GE(2 * progress.struck, armed);
  }

  // One job after the other in each of many sites: for what ends or stops an operator.
  static void RunApart(const std::vector<Case>& cases) {
    Progress progress;
    std::vector<std::jthread> threads;
    for (const auto& site : TheCluster().sites) {
      threads.emplace_back([&] { RunEach(*site, cases, progress); });
    }
    threads.clear();
    ExpectStruck(cases, progress);
  }

  // Many jobs at a time in one site.
  static void RunTogether(Site& site, const std::vector<Case>& cases) {
    Progress progress;
    std::vector<std::jthread> threads;
    for (int i = 0; i < kJobs; ++i) threads.emplace_back([&] { RunEach(site, cases, progress); });
    threads.clear();
    ExpectStruck(cases, progress);
  }

  static std::vector<Case> AtWrites(const std::vector<Strike>& strikes) {
    const unsigned seed = TheCluster().seed;
    std::vector<Case> cases;
    const std::vector<Scenario>& scenarios = TheCluster().scenarios;
    for (std::size_t i = 0; i < scenarios.size(); ++i) {
      for (int write = 1; write <= TheCluster().quiet.at(scenarios[i].name).writes; ++write) {
        for (const Strike strike : strikes) {
          if (IsChosen(strike, i, write, seed))
            cases.push_back({&scenarios[i], StrikeAt(strike, write, seed)});
        }
      }
    }
    return cases;
  }

  static std::vector<Case> InEachScenario(const std::vector<Disturbance>& disturbances) {
    std::vector<Case> cases;
    for (const Scenario& scenario : TheCluster().scenarios) {
      for (const Disturbance& disturbance : disturbances) cases.push_back({&scenario, disturbance});
    }
    return cases;
  }
};

TEST_F(Faults, ACrashAtAnyWriteChangesNothing) {
  RunApart(AtWrites({Strike::kCrashBefore, Strike::kCrashAfter}));
}

TEST_F(Faults, CachesOfThePastAfterACrashChangeNothing) { RunApart(AtWrites({Strike::kCrashThenPast})); }

TEST_F(Faults, ALeaderPausedAtAnyWriteChangesNothing) { RunApart(AtWrites({Strike::kPause})); }

TEST_F(Faults, ALostAnswerToAnyWriteChangesNothing) {
  RunTogether(*TheCluster().NewSite(), AtWrites({Strike::kLostAnswer}));
}

TEST_F(Faults, FailuresOfEachWriteChangeNothing) {
  std::vector<Disturbance> all;
  for (const Fault fault : {Fault::kTimeOut, Fault::kReset, Fault::kConflict, Fault::kThrottled,
                            Fault::kInternal, Fault::kUnavailable}) {
    all.push_back({.fault = fault, .write = FaultTransport::kEachWrite});
  }
  RunTogether(*TheCluster().NewSite(), InEachScenario(all));
}

TEST_F(Faults, WatchesThatBreakChangeNothing) {
  const auto site = TheCluster().NewSite();
  site->network().BreakWatches(TheCluster().seed);
  const Disturbance chaos{.chaos = true, .seed = TheCluster().seed};
  RunTogether(*site, InEachScenario({chaos, chaos, chaos}));
}

// What the scenarios end in, left alone since the beginning: last, so that nobody waits for it.
TEST_F(Faults, NothingIsWrittenWhileNothingHappens) {
  const auto silence = [&] { return TheCluster().quiet_site->ledger.silence(); };
  EXPECT_TRUE(Eventually([&] { return silence() > kStill; }, kStill)) << "it wrote";
  std::cout << silence().count() << " ms without a write\n";
}

}  // namespace
}  // namespace lockstep::testing

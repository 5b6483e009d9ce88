#pragma once
// The network between one operator and the API server, with a will of its own: it breaks at the n-th write
// for a job, serves lists of the past, cuts watches. Any thread.

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/http/transport.h"

namespace lockstep::testing {

enum class Fault {
  kNone,
  kCrashBefore,  // the process is gone, the write was never sent
  kCrashAfter,   // it was sent, and nobody heard the answer
  kLostAnswer,   // sent; the connection broke before the answer
  kTimeOut,      // sent; no answer in time
  kReset,        // not sent; also the second attempt of the client
  kConflict,     // refused with 409 …
  kThrottled,    // 429
  kInternal,     // 500
  kUnavailable,  // 503
  kPause,        // the whole process stops before the write, until Resume
};
[[nodiscard]] std::string_view FaultName(Fault fault);

// How often each happened, by its name.
using Counts = std::map<std::string, int>;
[[nodiscard]] int CountOf(const Counts& counts, const std::string& what);
[[nodiscard]] Counts Since(const Counts& before, const Counts& after);

// What the operators did to the API server for one job. Events and leases do not count.
struct JobWrites {
  int attempts = 0;
  // The same by verb and object, without the job's name: "POST pods -worker-0" → 2.
  Counts attempts_of;
  int strikes = 0;  // faults that struck
  // Objects made and taken away, by kind: "+pods" → 2.
  Counts changes;
  // Versions of the whole store that the answers contained, oldest first.
  std::vector<std::string> versions;
  SteadyTime last{};
  Milliseconds slowest{};  // from an attempt to its answer
  int open = 0;            // not answered yet

  [[nodiscard]] Milliseconds silence() const;  // since the last answer
};

// Of all operators of a namespace, by job.
class WriteLedger {
 public:
  // Before a write is sent, so that who sees what it did knows of it, and after it.
  void CountAttempt(const std::string& job, const http::Request& request);
  void CountStrike(const std::string& job);
  void CountAnswer(const std::string& job, const http::Request& request,
                   const Result<http::Response>& response, SteadyTime begin);
  [[nodiscard]] JobWrites of(const std::string& job) const;
  [[nodiscard]] Milliseconds silence() const;  // of all

 private:
  mutable std::mutex mutex_;
  std::map<std::string, JobWrites> jobs_;
  std::set<std::string> deleted_;  // uids
};

class FaultTransport final : public http::HttpTransport {
 public:
  FaultTransport(http::HttpTransport& inner, WriteLedger& ledger) : inner_(inner), ledger_(ledger) {}

  // The n-th write for this job from now on, 1 for the next one; kEachWrite: two of three, as the client
  // tries twice.
  static constexpr int kEachWrite = 0;
  void Arm(const std::string& job, int write, Fault fault);
  // Lists show the past, and watches begin only after `hold`: the caches are stale for so long.
  void ServeThePast(std::string version, Milliseconds hold);
  // From now on each piece of a watch may be lost, with the rest of it; the next watch may be refused with
  // 410.
  void BreakWatches(unsigned seed);
  // Lets the write go that kPause stopped; nothing after it: the leader that was paused past its lease ends.
  void Resume();
  void Crash();

  [[nodiscard]] bool crashed() const;
  [[nodiscard]] bool paused() const;

  Result<http::Response> Send(const http::Request& request, std::stop_token stop) override;
  Result<http::Response> Stream(const http::Request& request, const http::ChunkHandler& on_chunk,
                                std::stop_token stop) override;

 private:
  struct Armed {
    int writes = 0;  // until now
    int at = 0;
    bool each = false;
    Fault fault = Fault::kNone;
  };

  [[nodiscard]] Fault Next(const std::string& job);
  [[nodiscard]] bool Alive();  // waits while paused
  [[nodiscard]] bool Chance(double probability);
  Result<http::Response> Write(const http::Request& request);
  Result<http::Response> Pass(const std::string& job, const http::Request& request);

  http::HttpTransport& inner_;
  WriteLedger& ledger_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // All GUARDED_BY(mutex_).
  std::map<std::string, Armed> armed_;  // by job
  bool crashed_ = false;
  bool paused_ = false;
  bool resumed_ = false;
  std::string past_;
  Milliseconds hold_{};
  std::optional<std::minstd_rand> chaos_;
};

}  // namespace lockstep::testing

#include "tests/integration/operator/fault_transport.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/common/base/json.h"

namespace lockstep::testing {
namespace {

constexpr double kCut = 0.1;
constexpr double kForgotten = 0.3;

bool IsWrite(const http::Request& request) {
  return request.method != "GET" && request.target.find("/events") == std::string::npos &&
         request.target.find("/leases") == std::string::npos;
}

// The plural in ".../namespaces/<namespace>/<plural>/…".
std::string PluralOf(const std::string& target) {
  const std::size_t begin = target.find('/', target.find("/namespaces/") + 12) + 1;
  return target.substr(begin, target.find_first_of("/?", begin) - begin);
}

std::string NameOf(const http::Request& request) {
  const std::string plural = "/" + PluralOf(request.target);
  const std::size_t end = request.target.find(plural) + plural.size();
  if (end < request.target.size() && request.target[end] == '/') {
    return request.target.substr(end + 1, request.target.find_first_of("/?", end + 1) - end - 1);
  }
  const auto body = ParseJson(request.body);
  return body.ok() ? StringAt(*body, {"metadata", "name"}) : "";
}

// Names begin with the job's, which has no dash in it: "job7-worker-0".
std::string JobOf(const http::Request& request) {
  const std::string name = NameOf(request);
  return name.substr(0, name.find('-'));
}

http::Response Refusal(int status, const std::string& reason) {
  return {
      .status = status,
      .body = DumpJson({{"kind", "Status"}, {"code", status}, {"reason", reason}, {"message", "injected"}})};
}

}  // namespace

std::string_view FaultName(Fault fault) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "nothing", "crash before", "crash after", "lost answer", "time-out", "reset",
      "409",     "429",          "500",         "503",         "pause"};
  return kNames.at(static_cast<std::size_t>(fault));
}

int CountOf(const Counts& counts, const std::string& what) {
  const auto found = counts.find(what);
  return found == counts.end() ? 0 : found->second;
}

Counts Since(const Counts& before, const Counts& after) {
  Counts since;
  for (const auto& [what, count] : after) since[what] = count - CountOf(before, what);
  return since;
}

Milliseconds JobWrites::silence() const {
  if (open > 0) return Milliseconds(0);
  return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - last);
}

void WriteLedger::CountAttempt(const std::string& job, const http::Request& request) {
  const std::string what =
      request.method + " " + PluralOf(request.target) + " " + NameOf(request).substr(job.size());
  const std::lock_guard lock(mutex_);
  JobWrites& writes = jobs_[job];
  ++writes.attempts;
  ++writes.attempts_of[what];
  ++writes.open;
}

void WriteLedger::CountStrike(const std::string& job) {
  const std::lock_guard lock(mutex_);
  ++jobs_[job].strikes;
}

void WriteLedger::CountAnswer(const std::string& job, const http::Request& request,
                              const Result<http::Response>& response, SteadyTime begin) {
  const auto body = ParseJson(response.ok() ? response->body : "");
  const std::lock_guard lock(mutex_);
  JobWrites& writes = jobs_[job];
  --writes.open;
  writes.last = std::chrono::steady_clock::now();
  writes.slowest = std::max(writes.slowest, std::chrono::duration_cast<Milliseconds>(writes.last - begin));
  if (!response.ok() || response->status >= 300 || !body.ok()) return;
  if (const std::string version = StringAt(*body, {"metadata", "resourceVersion"}); !version.empty()) {
    writes.versions.push_back(version);
  }
  const std::string plural = PluralOf(request.target);
  if (response->status == 201) ++writes.changes["+" + plural];
  if (request.method == "DELETE" && deleted_.insert(StringAt(*body, {"metadata", "uid"})).second) {
    ++writes.changes["-" + plural];
  }
}

JobWrites WriteLedger::of(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? JobWrites{} : found->second;
}

Milliseconds WriteLedger::silence() const {
  const std::lock_guard lock(mutex_);
  auto least = Milliseconds::max();
  for (const auto& [job, writes] : jobs_) least = std::min(least, writes.silence());
  return least;
}

void FaultTransport::Arm(const std::string& job, int write, Fault fault) {
  const std::lock_guard lock(mutex_);
  Armed& armed = armed_[job];
  armed.at = armed.writes + write;
  armed.each = write == kEachWrite;
  armed.fault = fault;
}

void FaultTransport::ServeThePast(std::string version, Milliseconds hold) {
  const std::lock_guard lock(mutex_);
  past_ = std::move(version);
  hold_ = hold;
}

void FaultTransport::BreakWatches(unsigned seed) {
  const std::lock_guard lock(mutex_);
  chaos_.emplace(seed);
}

void FaultTransport::Resume() {
  const std::lock_guard lock(mutex_);
  resumed_ = true;
  changed_.notify_all();
}

void FaultTransport::Crash() {
  const std::lock_guard lock(mutex_);
  crashed_ = true;
  changed_.notify_all();
}

bool FaultTransport::crashed() const {
  const std::lock_guard lock(mutex_);
  return crashed_;
}

bool FaultTransport::paused() const {
  const std::lock_guard lock(mutex_);
  return paused_;
}

Fault FaultTransport::Next(const std::string& job) {
  const std::lock_guard lock(mutex_);
  Armed& armed = armed_[job];
  ++armed.writes;
  if (armed.each) return (armed.writes - armed.at) % 3 != 0 ? armed.fault : Fault::kNone;
  const bool is_second_attempt = armed.fault == Fault::kReset && armed.writes == armed.at + 1;
  return armed.writes == armed.at || is_second_attempt ? armed.fault : Fault::kNone;
}

bool FaultTransport::Alive() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !paused_ || crashed_; });
  return !crashed_;
}

bool FaultTransport::Chance(double probability) {
  const std::lock_guard lock(mutex_);
  return chaos_ && std::uniform_real_distribution<double>(0, 1)(*chaos_) < probability;
}

// Not to be stopped: what is on its way when the process dies arrives, and counts.
Result<http::Response> FaultTransport::Pass(const std::string& job, const http::Request& request) {
  ledger_.CountAttempt(job, request);
  const SteadyTime begin = std::chrono::steady_clock::now();
  auto response = inner_.Send(request, {});
  ledger_.CountAnswer(job, request, response, begin);
  return response;
}

Result<http::Response> FaultTransport::Write(const http::Request& request) {
  const Error gone{ErrorCode::kCancelled, "the process is gone"};
  const std::string job = JobOf(request);
  const Fault fault = Next(job);
  if (fault != Fault::kNone) ledger_.CountStrike(job);
  if (fault == Fault::kPause) {
    std::unique_lock lock(mutex_);
    paused_ = true;
    changed_.wait(lock, [this] { return resumed_ || crashed_; });
    if (crashed_) return gone;
  }
  if (fault == Fault::kCrashBefore) Crash();
  if (fault == Fault::kReset) return Error{ErrorCode::kUnavailable, "injected reset"};
  if (fault == Fault::kConflict) return Refusal(409, "Conflict");
  if (fault == Fault::kThrottled) return Refusal(429, "TooManyRequests");
  if (fault == Fault::kInternal) return Refusal(500, "InternalError");
  if (fault == Fault::kUnavailable) return Refusal(503, "ServiceUnavailable");
  if (crashed()) return gone;
  auto response = Pass(job, request);
  if (fault == Fault::kCrashAfter || fault == Fault::kPause) Crash();
  if (fault == Fault::kLostAnswer) return Error{ErrorCode::kUnavailable, "injected loss of the answer"};
  if (fault == Fault::kTimeOut) return Error{ErrorCode::kDeadlineExceeded, "injected time-out"};
  return crashed() ? Result<http::Response>(gone) : std::move(response);
}

Result<http::Response> FaultTransport::Send(const http::Request& request, std::stop_token stop) {
  if (!Alive()) return Error{ErrorCode::kCancelled, "the process is gone"};
  if (IsWrite(request)) return Write(request);
  http::Request read = request;
  const bool is_list = request.target.find("limit=") != std::string::npos;
  {
    const std::lock_guard lock(mutex_);
    if (is_list && !past_.empty()) read.target += "&resourceVersion=" + past_ + "&resourceVersionMatch=Exact";
  }
  return inner_.Send(read, stop);
}

Result<http::Response> FaultTransport::Stream(const http::Request& request,
                                              const http::ChunkHandler& on_chunk, std::stop_token stop) {
  if (!Alive()) return Error{ErrorCode::kCancelled, "the process is gone"};
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, hold_, [this] { return crashed_; });
    hold_ = {};
  }
  if (Chance(kForgotten)) return Refusal(410, "Expired");
  bool cut = false;
  auto response = inner_.Stream(
      request,
      [&](std::string_view chunk) {
        if (!Alive()) return false;
        cut = Chance(kCut);
        return on_chunk(cut ? chunk.substr(0, chunk.size() / 2) : chunk) && !cut;
      },
      stop);
  if (cut) return Error{ErrorCode::kUnavailable, "injected cut"};
  return response;
}

}  // namespace lockstep::testing

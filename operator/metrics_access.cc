#include "operator/metrics_access.h"

#include <utility>

#include "operator/rendezvous/token_review.h"
#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"

namespace lockstep {
namespace {

constexpr std::chrono::minutes kFresh{1};
constexpr std::chrono::minutes kBelieved{10};  // validity of a positive answer while reviews fail
constexpr std::size_t kMaxKnown = 1'000;       // tokens
constexpr std::size_t kMaxQueued = 100;        // requests

Json AccessReviewFor(const Json& user) {
  Json spec = {{"nonResourceAttributes", {{"path", "/metrics"}, {"verb", "get"}}},
               {"user", StringAt(user, {"username"})}};
  for (const char* field : {"uid", "groups", "extra"}) {
    if (const Json* value = FindJson(user, {field})) spec[field] = *value;
  }
  return {{"spec", std::move(spec)}};
}

// kUnavailable if the API server does not decide.
Result<void> Review(kube::KubeWriter& writer, const std::string& token) {
  const auto unavailable = [](const Error& error) {
    return Error{ErrorCode::kUnavailable, "the API server cannot be asked: " + error.ToString()};
  };
  const auto token_review = writer.Create(kube::kTokenReviews, {{"spec", {{"token", token}}}});
  if (!token_review.ok()) return unavailable(token_review.error());
  const Json* user = FindJson(*token_review, {"status", "user"});
  if (!BoolAt(*token_review, {"status", "authenticated"}) || user == nullptr) {
    return Error{ErrorCode::kUnauthorized,
                 StringAt(*token_review, {"status", "error"}, "the token is not valid")};
  }
  const auto access_review = writer.Create(kube::kSubjectAccessReviews, AccessReviewFor(*user));
  if (!access_review.ok()) return unavailable(access_review.error());
  if (BoolAt(*access_review, {"status", "allowed"})) return {};
  return Error{
      ErrorCode::kForbidden,
      StringAt(*user, {"username"}) +
          " may not get /metrics: bind it to a ClusterRole with the verb get for nonResourceURLs [/metrics]"};
}

bool WasReviewed(const Result<void>& answer) {
  return answer.ok() || answer.error().code != ErrorCode::kUnavailable;
}

}  // namespace

MetricsAccess::MetricsAccess(kube::KubeWriter& writer, const Clock& clock)
    : writer_(writer), clock_(clock), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

MetricsAccess::~MetricsAccess() {
  thread_.request_stop();
  thread_.join();
  for (Waiting& waiting : queue_) waiting.done(Error{ErrorCode::kCancelled, "the operator is stopping"});
}

void MetricsAccess::Authorize(const std::string& token, const std::string& peer, Done done) {
  if (token.empty()) return done(Error{ErrorCode::kUnauthorized, "no bearer token"});
  std::optional<Result<void>> answer;
  {
    const MutexLock lock(mutex_);
    answer = Find(rendezvous::DigestOf(token), kFresh);
    if (!answer && (queue_.size() >= kMaxQueued || !budget_.Take(peer, clock_.Steady())))
      answer =
          Error{ErrorCode::kThrottled, "too many requests wait for a review, or were refused: try again"};
    if (!answer) {
      queue_.push_back({token, peer, std::move(done)});
      wake_.notify_one();
      return;
    }
  }
  done(*answer);
}

void MetricsAccess::Run(const std::stop_token& stop) {
  while (true) {
    Waiting waiting;
    {
      MutexLock lock(mutex_);
      if (!wake_.wait(lock, stop, [this]() LOCKSTEP_REQUIRES(mutex_) { return !queue_.empty(); })) return;
      waiting = std::move(queue_.front());
      queue_.pop_front();
    }
    waiting.done(Answer(waiting));
    if (stop.stop_requested()) return;
  }
}

Result<void> MetricsAccess::Answer(const Waiting& waiting) {
  const std::string digest = rendezvous::DigestOf(waiting.token);
  {
    const MutexLock lock(mutex_);
    if (auto known = Find(digest, kFresh)) return *known;  // cached by a review for an earlier request
  }
  Result<void> answer = Error{};
  const auto asked = Guarded([&] { answer = Review(writer_, waiting.token); });
  if (!asked.ok()) answer = Error{ErrorCode::kUnavailable, asked.error().message};
  const MutexLock lock(mutex_);
  if (answer.ok()) budget_.Refund(waiting.peer);
  if (WasReviewed(answer)) {
    Remember(digest, answer);
    return answer;
  }
  const auto known = Find(digest, kBelieved);
  return known && known->ok() ? *known : answer;
}

std::optional<Result<void>> MetricsAccess::Find(const std::string& digest, Milliseconds age) const {
  const auto found = known_.find(digest);
  if (found == known_.end() || clock_.Steady() - found->second.at >= age) return std::nullopt;
  return found->second.answer;
}

void MetricsAccess::Remember(const std::string& digest, const Result<void>& answer) {
  const SteadyTime now = clock_.Steady();
  if (known_.size() >= kMaxKnown) {
    std::erase_if(known_, [&](const auto& entry) {
      return !entry.second.answer.ok() || now - entry.second.at >= kBelieved;
    });
  }
  if (known_.size() >= kMaxKnown) known_.clear();
  known_[digest] = {answer, now};
}

}  // namespace lockstep

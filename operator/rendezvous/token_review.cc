#include "operator/rendezvous/token_review.h"

#include <openssl/evp.h>

#include <utility>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"

namespace lockstep::rendezvous {
namespace {

constexpr int kThreads = 4;
constexpr int kUnknownEvery = 4;                  // one in so many reviews is for an unknown token
constexpr std::size_t kMaxUnknown = 20'000;       // tokens
constexpr std::size_t kMaxRequestsOfToken = 32;   // a member has few concurrent requests and repeats some
constexpr std::chrono::seconds kFresh{60};        // then it is reviewed again
constexpr std::chrono::seconds kRetry{10};        // after a review that failed
constexpr std::chrono::minutes kBelieved{10};     // validity of a cached result while reviews fail
constexpr std::chrono::seconds kLongestWait{10};  // after this the member has given up on the request

bool WasReviewed(const Result<TokenIdentity>& identity) {
  return identity.ok() || identity.error().code == ErrorCode::kUnauthorized;
}

}  // namespace

std::string DigestOf(const std::string& token) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int length = 0;
  EVP_Digest(token.data(), token.size(), reinterpret_cast<unsigned char*>(digest.data()), &length,
             EVP_sha256(), nullptr);
  digest.resize(length);
  return digest;
}

TokenReviewer::TokenReviewer(kube::KubeWriter& writer, const kube::Store& pods, const Clock& clock)
    : writer_(writer), pods_(pods), clock_(clock) {
  for (int i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { Run(stop); });
  }
}

TokenReviewer::~TokenReviewer() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
  for (auto& [token, unknown] : unknown_) {
    for (Waiting& waiting : unknown.waiting)
      waiting.done(Error{ErrorCode::kCancelled, "the operator is stopping"});
  }
}

void TokenReviewer::Authorize(const Claim& claim, Done done) {
  if (claim.token.empty()) return done(Error{ErrorCode::kUnauthorized, "no bearer token"});
  const std::string digest = DigestOf(claim.token);
  std::optional<Result<TokenIdentity>> answer;
  {
    const MutexLock lock(mutex_);
    answer = AnswerNow(claim, digest);
    if (!answer.has_value()) return unknown_.at(claim.token).waiting.push_back({claim, std::move(done)});
  }
  done(Check(*answer, claim));
}

std::optional<Result<TokenIdentity>> TokenReviewer::AnswerNow(const Claim& claim, const std::string& digest) {
  const SteadyTime now = clock_.Steady();
  const auto found = known_.find(digest);
  if (found != known_.end() && now - found->second.confirmed < kBelieved) {
    Known& known = found->second;
    if (now >= known.next_review && !std::exchange(known.is_queued, true)) {
      known_queue_.push_back(claim.token);
      wake_.notify_one();
    }
    return known.identity;
  }
  if (const auto why = refused_.Find(digest, now)) return *why;
  const auto waits = unknown_.find(claim.token);
  if (waits != unknown_.end()) {
    if (waits->second.waiting.size() < kMaxRequestsOfToken) return std::nullopt;
    return Error{ErrorCode::kThrottled, "too many requests with this token wait for its review"};
  }
  if (unknown_.size() >= kMaxUnknown || !budget_.Take(claim.peer, now))
    return Error{ErrorCode::kThrottled, "too many unknown tokens from " + claim.peer + ": try again"};
  unknown_[claim.token] = {.source = claim.peer, .since = now, .waiting = {}};
  unknown_queue_.push_back(claim.token);
  wake_.notify_one();
  return std::nullopt;
}

void TokenReviewer::Run(const std::stop_token& stop) {
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      const auto has_task = [this]() LOCKSTEP_REQUIRES(mutex_) {
        return !known_queue_.empty() || !unknown_queue_.empty();
      };
      if (!wake_.wait(lock, stop, has_task)) return;
      task = NextTask();
    }
    const auto reviewed =
        Guarded([&] { task.is_known ? ReviewKnown(task.token) : ReviewUnknown(task.token); });
    if (!reviewed.ok()) log::Error("token review failed", {{"error", reviewed.error().message}});
    if (stop.stop_requested()) return;
  }
}

// Known tokens come first. If the API server is too slow even for these, every fourth review is for a new
// member.
TokenReviewer::Task TokenReviewer::NextTask() {
  const bool prefers_unknown = ++tasks_ % kUnknownEvery == 0;
  const bool takes_known = unknown_queue_.empty() || (!known_queue_.empty() && !prefers_unknown);
  std::deque<std::string>& queue = takes_known ? known_queue_ : unknown_queue_;
  Task task{.token = std::move(queue.front()), .is_known = takes_known};
  queue.pop_front();
  return task;
}

void TokenReviewer::ReviewKnown(const std::string& token) {
  const SteadyTime asked = clock_.Steady();
  const auto identity = Ask(token);
  const MutexLock lock(mutex_);
  Remember(DigestOf(token), identity, asked);
}

void TokenReviewer::ReviewUnknown(const std::string& token) {
  const SteadyTime asked = clock_.Steady();
  bool is_late = false;
  {
    const MutexLock lock(mutex_);
    is_late = asked - unknown_.at(token).since >= kLongestWait;
  }
  const Result<TokenIdentity> identity =
      is_late ? Error{ErrorCode::kUnavailable, "the token waited too long for its review"} : Ask(token);
  std::vector<Waiting> list;
  {
    const MutexLock lock(mutex_);
    const auto found = unknown_.find(token);
    if (identity.ok()) budget_.Refund(found->second.source);
    if (!is_late) Remember(DigestOf(token), identity, asked);
    list = std::move(found->second.waiting);
    unknown_.erase(found);
  }
  for (Waiting& waiting : list) waiting.done(Check(identity, waiting.claim));
}

Result<TokenIdentity> TokenReviewer::Ask(const std::string& token) {
  Result<Json> review = Error{};
  const auto asked = Guarded([&] { review = writer_.Create(kube::kTokenReviews, TokenReviewFor(token)); });
  if (!asked.ok()) review = asked.error();
  if (review.ok()) return IdentityFromReview(*review);
  // Whatever the error is, it says nothing about the token.
  return Error{ErrorCode::kUnavailable, "token review failed: " + review.error().ToString()};
}

void TokenReviewer::Remember(const std::string& digest, const Result<TokenIdentity>& identity,
                             SteadyTime asked) {
  LogChange(identity);
  if (identity.ok()) {
    std::erase_if(known_, [&](const auto& entry) { return asked - entry.second.confirmed >= kBelieved; });
    known_[digest] = {.identity = *identity, .confirmed = asked, .next_review = asked + kFresh};
  } else if (WasReviewed(identity)) {
    known_.erase(digest);
    refused_.Add(digest, identity.error(), asked);
  } else if (const auto found = known_.find(digest); found != known_.end()) {
    found->second.next_review = asked + kRetry;
    found->second.is_queued = false;
  }
}

void TokenReviewer::LogChange(const Result<TokenIdentity>& identity) {
  const bool fails = !WasReviewed(identity);
  if (std::exchange(reviews_fail_, fails) == fails) return;
  fails
      ? log::Warning("token reviews fail: known members are accepted for ten minutes, new ones have to wait",
                     {{"error", identity.error().message}})
      : log::Info("token reviews succeed again");
}

Result<void> TokenReviewer::Check(const Result<TokenIdentity>& identity, const Claim& claim) const {
  if (!identity.ok()) return identity.error();
  return CheckMember(*identity, claim.job, claim.member, pods_.Get({claim.job.name_space, claim.member.pod}));
}

}  // namespace lockstep::rendezvous

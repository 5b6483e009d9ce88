#include "operator/rendezvous/token_review.h"

#include <openssl/evp.h>

#include <utility>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"

namespace lockstep::rendezvous {
namespace {

constexpr int kThreads = 4;
constexpr std::size_t kMaxWaiting = 20'000;
constexpr std::chrono::seconds kFresh{60};
constexpr std::chrono::minutes kBelievedWithoutServer{10};

// Tokens are secrets: what is kept beyond a request is a digest.
std::string DigestOf(const std::string& token) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int length = 0;
  EVP_Digest(token.data(), token.size(), reinterpret_cast<unsigned char*>(digest.data()), &length,
             EVP_sha256(), nullptr);
  digest.resize(length);
  return digest;
}

}  // namespace

TokenReviewer::TokenReviewer(kube::KubeWriter& writer, const kube::Store& pods, const Clock& clock)
    : writer_(writer), pods_(pods), clock_(clock) {
  for (int i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { Run(stop); });
  }
}

TokenReviewer::~TokenReviewer() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
  for (auto& [token, list] : waiting_) {
    for (Waiting& waiting : list) waiting.done(Error{ErrorCode::kCancelled, "the operator is stopping"});
  }
}

void TokenReviewer::Authorize(const std::string& token, const protocol::JobIdentity& job,
                              const protocol::Member& member, Done done) {
  if (token.empty()) return done(Error{ErrorCode::kUnauthorized, "no bearer token"});
  Waiting waiting{job, member, std::move(done)};
  std::optional<TokenIdentity> identity;
  {
    const MutexLock lock(mutex_);
    const auto known = known_.find(DigestOf(token));
    if (known != known_.end() && clock_.Steady() - known->second.asked < kFresh) {
      identity = known->second.identity;
    } else if (waiting_.size() < kMaxWaiting) {
      std::vector<Waiting>& list = waiting_[token];
      if (list.empty()) queue_.push_back(token);
      list.push_back(std::move(waiting));
      wake_.notify_one();
      return;
    }
  }
  if (identity) return waiting.done(Check(*identity, waiting));
  waiting.done(Error{ErrorCode::kThrottled, "too many tokens wait for review"});
}

void TokenReviewer::Run(const std::stop_token& stop) {
  while (true) {
    std::string token;
    {
      MutexLock lock(mutex_);
      if (!wake_.wait(lock, stop, [this]() LOCKSTEP_REQUIRES(mutex_) { return !queue_.empty(); })) return;
      token = std::move(queue_.front());
      queue_.pop_front();
    }
    const auto reviewed = Guarded([&] { Review(token); });
    if (!reviewed.ok()) log::Error("token review failed", {{"error", reviewed.error().message}});
    if (stop.stop_requested()) return;
  }
}

void TokenReviewer::Review(const std::string& token) {
  Result<TokenIdentity> identity = Error{};
  if (const auto asked = Guarded([&] { identity = Ask(token); }); !asked.ok()) {
    log::Error("token review failed", {{"error", asked.error().message}});
    identity = asked.error();
  }
  std::vector<Waiting> list;
  {
    const MutexLock lock(mutex_);
    const auto found = waiting_.find(token);
    list = std::move(found->second);
    waiting_.erase(found);
  }
  for (Waiting& waiting : list) {
    waiting.done(identity.ok() ? Check(*identity, waiting) : Result<void>(identity.error()));
  }
}

Result<TokenIdentity> TokenReviewer::Ask(const std::string& token) {
  const auto review = writer_.Create(kube::kTokenReviews, TokenReviewFor(token));
  const std::string digest = DigestOf(token);
  if (!review.ok()) {
    log::Warning("token review failed", {{"error", review.error().ToString()}});
    const MutexLock lock(mutex_);
    const auto known = known_.find(digest);
    const bool believed = review.error().IsTransient() && known != known_.end() &&
                          clock_.Steady() - known->second.asked < kBelievedWithoutServer;
    return believed ? Result<TokenIdentity>(known->second.identity) : Result<TokenIdentity>(review.error());
  }
  auto identity = IdentityFromReview(*review);
  const MutexLock lock(mutex_);
  DropExpired();
  if (identity.ok()) {
    known_[digest] = {*identity, clock_.Steady()};
  } else {
    known_.erase(digest);
  }
  return identity;
}

Result<void> TokenReviewer::Check(const TokenIdentity& identity, const Waiting& waiting) const {
  return CheckMember(identity, waiting.job, waiting.member,
                     pods_.Get({waiting.job.name_space, waiting.member.pod}));
}

void TokenReviewer::DropExpired() {
  const SteadyTime now = clock_.Steady();
  std::erase_if(known_,
                [&](const auto& entry) { return now - entry.second.asked >= kBelievedWithoutServer; });
}

}  // namespace lockstep::rendezvous

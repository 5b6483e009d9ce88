#pragma once
// The rendezvous' Authorizer: asks the API server for the identity of a worker's token (TokenReview), on
// threads of its own. A valid token is accepted from the cache for ten minutes and reviewed in the
// background, because training must not depend on the API server's availability or speed. Only requests with
// an unknown token wait. Any thread calls Authorize; the destructor rejects waiting requests and joins.

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "operator/kube/client.h"
#include "operator/kube/store.h"
#include "operator/rendezvous/review_limits.h"
#include "operator/rendezvous/token_identity.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/rendezvous/service.h"

namespace lockstep::rendezvous {

// Request time-out for the client that the reviewer uses: an API server that does not answer must not block
// its threads.
inline constexpr std::chrono::seconds kReviewDeadline{5};

// Tokens are secrets, so only this digest is kept beyond a request.
[[nodiscard]] std::string DigestOf(const std::string& token);

class TokenReviewer {
 public:
  using Done = std::function<void(Result<void>)>;

  TokenReviewer(kube::KubeWriter& writer, const kube::Store& pods, const Clock& clock);
  ~TokenReviewer();

  // kUnauthorized: the token is not valid. kForbidden: it belongs to another member. Other errors are
  // temporary.
  void Authorize(const Claim& claim, Done done);

 private:
  struct Known {
    TokenIdentity identity;
    SteadyTime confirmed{};    // when the API server was asked last
    SteadyTime next_review{};  // not before
    bool is_queued = false;
  };
  struct Waiting {
    Claim claim;
    Done done;
  };
  struct Unknown {
    std::string source;  // the address whose budget the review uses
    SteadyTime since{};
    std::vector<Waiting> waiting;
  };
  struct Task {
    std::string token;
    bool is_known = false;
  };

  // The cached answer; no value if the request has to wait for a review.
  [[nodiscard]] std::optional<Result<TokenIdentity>> AnswerNow(const Claim& claim, const std::string& digest)
      LOCKSTEP_REQUIRES(mutex_);
  void Run(const std::stop_token& stop);
  [[nodiscard]] Task NextTask() LOCKSTEP_REQUIRES(mutex_);
  void ReviewKnown(const std::string& token);
  void ReviewUnknown(const std::string& token);
  [[nodiscard]] Result<TokenIdentity> Ask(const std::string& token);
  void Remember(const std::string& digest, const Result<TokenIdentity>& identity, SteadyTime asked)
      LOCKSTEP_REQUIRES(mutex_);
  void LogChange(const Result<TokenIdentity>& identity) LOCKSTEP_REQUIRES(mutex_);
  [[nodiscard]] Result<void> Check(const Result<TokenIdentity>& identity, const Claim& claim) const;

  kube::KubeWriter& writer_;
  const kube::Store& pods_;
  const Clock& clock_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::map<std::string, Known> known_ LOCKSTEP_GUARDED_BY(mutex_);  // by digest of the token
  RefusedTokens refused_ LOCKSTEP_GUARDED_BY(mutex_);
  ReviewBudget budget_ LOCKSTEP_GUARDED_BY(mutex_);
  // by token: one review answers all its requests
  std::map<std::string, Unknown> unknown_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<std::string> known_queue_ LOCKSTEP_GUARDED_BY(mutex_);    // tokens to review
  std::deque<std::string> unknown_queue_ LOCKSTEP_GUARDED_BY(mutex_);  // tokens of unknown_ to review
  int64_t tasks_ LOCKSTEP_GUARDED_BY(mutex_) = 0;                      // taken so far
  bool reviews_fail_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // the log has a line about failing reviews
  std::vector<std::jthread> threads_;  // last: join before the other members are destroyed
};

}  // namespace lockstep::rendezvous

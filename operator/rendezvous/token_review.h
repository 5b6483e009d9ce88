#pragma once
// The rendezvous' Authorizer: asks the API server whose token a worker presents (TokenReview), on threads of
// its own. A token that was found good is answered at once for ten minutes and reviewed again after each,
// because training must need the API server neither to be there nor to be fast. Only requests with an unknown
// token wait. Any thread calls Authorize; the destructor refuses what waits and joins.

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

// For the client that the reviewer writes with: an API server that does not answer must not hold its threads.
inline constexpr std::chrono::seconds kReviewDeadline{5};

// Tokens are secrets: what is kept beyond a request is this.
[[nodiscard]] std::string DigestOf(const std::string& token);

class TokenReviewer {
 public:
  using Done = std::function<void(Result<void>)>;

  TokenReviewer(kube::KubeWriter& writer, const kube::Store& pods, const Clock& clock);
  ~TokenReviewer();

  // kUnauthorized: the token is not good; kForbidden: it is another member's; every other error may pass.
  void Authorize(const Claim& claim, Done done);

 private:
  struct Known {
    TokenIdentity identity;
    SteadyTime confirmed{};    // when the API server was asked
    SteadyTime next_review{};  // not before
    bool is_queued = false;
  };
  struct Waiting {
    Claim claim;
    Done done;
  };
  struct Unknown {
    std::string source;  // pays for the review
    SteadyTime since{};
    std::vector<Waiting> waiting;
  };
  struct Task {
    std::string token;
    bool is_known = false;
  };

  // The answer that needs no review; nothing where the request has to wait for one.
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
  std::map<std::string, Unknown> unknown_ LOCKSTEP_GUARDED_BY(mutex_);  // by token: one review for all
  std::deque<std::string> known_queue_ LOCKSTEP_GUARDED_BY(mutex_);     // tokens to review
  std::deque<std::string> unknown_queue_ LOCKSTEP_GUARDED_BY(mutex_);   // of unknown_
  int64_t tasks_ LOCKSTEP_GUARDED_BY(mutex_) = 0;                       // taken so far
  bool reviews_fail_ LOCKSTEP_GUARDED_BY(mutex_) = false;               // and the log says so
  std::vector<std::jthread> threads_;                                   // last: join before the rest goes
};

}  // namespace lockstep::rendezvous

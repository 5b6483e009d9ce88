#pragma once
// The rendezvous' Authorizer: asks the API server whose token a worker presents (TokenReview), on threads of
// its own. An answer holds for a minute; while the API server is away a good one is believed for longer,
// because training must not need it. Any thread calls Authorize; the destructor refuses what waits and joins.

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "operator/kube/client.h"
#include "operator/kube/store.h"
#include "operator/rendezvous/token_identity.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::rendezvous {

class TokenReviewer {
 public:
  using Done = std::function<void(Result<void>)>;

  TokenReviewer(kube::KubeWriter& writer, const kube::Store& pods, const Clock& clock);
  ~TokenReviewer();

  void Authorize(const std::string& token, const protocol::JobIdentity& job, const protocol::Member& member,
                 Done done);

 private:
  struct Known {
    TokenIdentity identity;
    SteadyTime asked{};
  };
  struct Waiting {
    protocol::JobIdentity job;
    protocol::Member member;
    Done done;
  };

  void Run(const std::stop_token& stop);
  void Review(const std::string& token);
  [[nodiscard]] Result<TokenIdentity> Ask(const std::string& token);
  [[nodiscard]] Result<void> Check(const TokenIdentity& identity, const Waiting& waiting) const;
  void DropExpired() LOCKSTEP_REQUIRES(mutex_);

  kube::KubeWriter& writer_;
  const kube::Store& pods_;
  const Clock& clock_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::map<std::string, Known> known_ LOCKSTEP_GUARDED_BY(mutex_);  // by digest of the token
  // By token: one review for all.
  std::map<std::string, std::vector<Waiting>> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<std::string> queue_ LOCKSTEP_GUARDED_BY(mutex_);  // tokens to review
  std::vector<std::jthread> threads_;                          // last: join before the rest goes
};

}  // namespace lockstep::rendezvous

#pragma once
// Who may speak for a member of a job: the bearer of a projected service-account token of the audience
// "lockstep" whose pod is that member and belongs to that job. The API server judges the token (TokenReview);
// its answers are kept for a minute. Reviews run on a thread of their own, so the rendezvous' server never
// waits.

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "operator/kube/client.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/queue.h"
#include "runtime/common/rendezvous/service.h"

namespace lockstep::rendezvous {

inline constexpr std::string_view kAudience = "lockstep";

// Whether the pod (namespace, name, uid) is owned by the job of that uid. Any thread; must not block.
using PodBelongs =
    std::function<bool(const kube::ObjectKey& pod, const std::string& pod_uid, const std::string& job_uid)>;

// What a valid token says of its bearer.
struct TokenBearer {
  std::string name_space;
  std::string pod;
  std::string pod_uid;
};

// kUnauthorized where the API server does not accept the token for our audience or it is bound to no pod.
// Pure.
[[nodiscard]] Result<TokenBearer> BearerOf(const Json& token_review);

class TokenReviewer {
 public:
  TokenReviewer(kube::KubeWriter& client, PodBelongs pod_belongs, const Clock& clock);

  // For RendezvousService; the reviewer must outlive it.
  [[nodiscard]] Authorizer MakeAuthorizer();

 private:
  struct Question {
    std::string token;
    protocol::JobIdentity job;
    protocol::Member member;
    std::function<void(Result<void>)> done;
  };
  struct Remembered {
    TokenBearer bearer;
    SteadyTime until;
  };

  void Run(std::stop_token stop);
  Result<TokenBearer> Review(const std::string& token);
  [[nodiscard]] Result<void> Decide(const TokenBearer& bearer, const Question& question) const;

  kube::KubeWriter& client_;
  const PodBelongs pod_belongs_;
  const Clock& clock_;
  std::map<std::string, Remembered> remembered_;  // by token; the review thread's own
  Queue<Question> questions_;
  std::jthread thread_;
};

}  // namespace lockstep::rendezvous

#pragma once
// Restricts /metrics to users that the API server allows to GET the path /metrics (TokenReview, then
// SubjectAccessReview), like every controller built with controller-runtime. An answer is cached for a
// minute. While the API server does not answer, a positive answer is valid for ten minutes, because metrics
// are most needed then. Any thread calls Authorize; a separate thread sends the reviews. The destructor
// rejects waiting requests and joins.

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "operator/kube/client.h"
#include "operator/rendezvous/review_limits.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/result.h"

namespace lockstep {

class MetricsAccess {
 public:
  using Done = std::function<void(Result<void>)>;

  MetricsAccess(kube::KubeWriter& writer, const Clock& clock);
  ~MetricsAccess();

  // kUnauthorized: the token is not valid. kForbidden: its user has no permission. Other errors are
  // temporary. `peer` is the address that the request came from.
  void Authorize(const std::string& token, const std::string& peer, Done done);

 private:
  struct Known {
    Result<void> answer;
    SteadyTime at{};
  };
  struct Waiting {
    std::string token;
    std::string peer;
    Done done;
  };

  void Run(const std::stop_token& stop);
  [[nodiscard]] Result<void> Answer(const Waiting& waiting);
  [[nodiscard]] std::optional<Result<void>> Find(const std::string& digest, Milliseconds age) const
      LOCKSTEP_REQUIRES(mutex_);
  void Remember(const std::string& digest, const Result<void>& answer) LOCKSTEP_REQUIRES(mutex_);

  kube::KubeWriter& writer_;
  const Clock& clock_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::map<std::string, Known> known_ LOCKSTEP_GUARDED_BY(mutex_);  // by digest of the token
  rendezvous::ReviewBudget budget_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<Waiting> queue_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: joins before the other members are destroyed
};

}  // namespace lockstep

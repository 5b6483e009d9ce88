#pragma once
// Limits the load that invalid tokens cause on the API server. Pure; the token reviewer locks around it.

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/error.h"

namespace lockstep::rendezvous {

// Tokens that the API server rejected during the last minute; they are rejected without another review. Keeps
// the newest 10,000.
class RefusedTokens {
 public:
  [[nodiscard]] std::optional<Error> Find(const std::string& digest, SteadyTime now) const;
  void Add(const std::string& digest, const Error& why, SteadyTime now);
  [[nodiscard]] std::size_t size() const { return by_digest_.size(); }

 private:
  struct Refusal {
    Error why;
    SteadyTime at{};
  };
  std::map<std::string, Refusal> by_digest_;
  std::deque<std::pair<SteadyTime, std::string>> oldest_first_;
};

// Limits how many reviews of unknown tokens one source address may cause: a burst of 60, and one more each
// second. The review of a valid token is credited back, so that many members may share one address.
class ReviewBudget {
 public:
  // False: this source has to wait.
  [[nodiscard]] bool Take(const std::string& source, SteadyTime now);
  void Refund(const std::string& source);
  [[nodiscard]] std::size_t size() const { return spent_.size(); }

 private:
  struct Spent {
    double reviews = 0;
    SteadyTime at{};
    [[nodiscard]] double Left(SteadyTime now) const;
  };
  std::map<std::string, Spent> spent_;  // by source
};

}  // namespace lockstep::rendezvous

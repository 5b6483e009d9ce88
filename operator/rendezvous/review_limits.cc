#include "operator/rendezvous/review_limits.h"

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

constexpr std::chrono::seconds kRefusedFor{60};
constexpr std::size_t kMaxRefused = 10'000;
constexpr double kReviewsAtOnce = 60;
constexpr double kReviewsPerSecond = 1;
constexpr std::size_t kMaxSources = 10'000;

}  // namespace

std::optional<Error> RefusedTokens::Find(const std::string& digest, SteadyTime now) const {
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end() || now - found->second.at >= kRefusedFor) return std::nullopt;
  return found->second.why;
}

void RefusedTokens::Add(const std::string& digest, const Error& why, SteadyTime now) {
  by_digest_[digest] = {why, now};
  oldest_first_.emplace_back(now, digest);
  while (oldest_first_.size() > kMaxRefused || now - oldest_first_.front().first >= kRefusedFor) {
    const auto& [at, oldest] = oldest_first_.front();
    const auto found = by_digest_.find(oldest);
    if (found != by_digest_.end() && found->second.at == at) by_digest_.erase(found);
    oldest_first_.pop_front();
  }
}

double ReviewBudget::Spent::Left(SteadyTime now) const {
  return std::max(0.0, reviews - kReviewsPerSecond * Seconds(now - at).count());
}

bool ReviewBudget::Take(const std::string& source, SteadyTime now) {
  if (!spent_.contains(source) && spent_.size() >= kMaxSources) {
    std::erase_if(spent_, [&](const auto& entry) { return entry.second.Left(now) == 0; });
    if (spent_.size() >= kMaxSources) return false;
  }
  Spent& spent = spent_[source];
  spent = {.reviews = spent.Left(now), .at = now};
  if (spent.reviews + 1 > kReviewsAtOnce) return false;
  ++spent.reviews;
  return true;
}

void ReviewBudget::Refund(const std::string& source) {
  const auto found = spent_.find(source);
  if (found != spent_.end()) found->second.reviews = std::max(0.0, found->second.reviews - 1);
}

}  // namespace lockstep::rendezvous

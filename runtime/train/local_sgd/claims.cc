#include "runtime/train/local_sgd/claims.h"

#include <algorithm>
#include <numeric>

namespace lockstep::train {
namespace {

// The rate of a rank without a batch grows by this factor from one window to the next. A larger factor would
// retry a hopeless rank so often that it slows the others.
constexpr double kForgetting = 1.1;
// Batches that another rank has claimed and not finished: half of one in progress, and one prefetched.
constexpr double kHeldByOthers = 1.5;

}  // namespace

std::vector<Claim> ClaimsOf(int64_t first_step, std::span<const int64_t> counts, int world) {
  std::vector<Claim> claims;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (int rank = 0; rank < world; ++rank) {
      const Slice positions = SliceOf(counts[i], rank, world);
      if (positions.size() > 0) claims.push_back({first_step + static_cast<int64_t>(i), positions});
    }
  }
  return claims;
}

std::vector<double> RatesAfter(std::span<const double> before, std::span<const double> measured) {
  const double fastest = *std::max_element(measured.begin(), measured.end());
  std::vector<double> rates(measured.begin(), measured.end());
  for (std::size_t i = 0; i < rates.size(); ++i) {
    if (rates[i] == 0) rates[i] = before.empty() ? fastest : std::min(fastest, kForgetting * before[i]);
  }
  return rates;
}

bool IsFastest(std::span<const double> rates, int rank) {
  return std::max_element(rates.begin(), rates.end()) - rates.begin() == rank;
}

bool IsWorthClaiming(std::span<const double> rates, int rank, int64_t held, int64_t left) {
  if (left <= 0) return false;
  if (IsFastest(rates, rank)) return true;
  const double mine = rates[static_cast<std::size_t>(rank)];
  const double others = std::accumulate(rates.begin(), rates.end(), -mine);
  const double work_of_others =
      static_cast<double>(left) + kHeldByOthers * static_cast<double>(rates.size() - 1);
  return static_cast<double>(held + 1) / mine <= work_of_others / others;
}

}  // namespace lockstep::train

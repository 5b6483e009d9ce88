#include "runtime/train/local_sgd/claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>

namespace lockstep::train {
namespace {

TEST(ClaimsOf, CutsEachStepAsTheRanksWouldShareIt) {
  const std::vector<int64_t> counts = {7, 2};
  EXPECT_EQ(ClaimsOf(5, counts, 3),
            (std::vector<Claim>{{5, {0, 3}}, {5, {3, 5}}, {5, {5, 7}}, {6, {0, 1}}, {6, {1, 2}}}));
  EXPECT_TRUE(ClaimsOf(5, {}, 3).empty());
}

TEST(RatesAfter, AreWhatTheRanksMeasured) {
  EXPECT_EQ(RatesAfter({}, std::vector<double>{4, 1}), (std::vector<double>{4, 1}));
  EXPECT_EQ(RatesAfter(std::vector<double>{4, 1}, std::vector<double>{3, 2}), (std::vector<double>{3, 2}));
}

TEST(RatesAfter, TriesARankWithoutABatchAgainOneDay) {
  EXPECT_EQ(RatesAfter({}, std::vector<double>{4, 0}), (std::vector<double>{4, 4})) << "never tried";
  std::vector<double> rates = {4, 1};
  rates = RatesAfter(rates, std::vector<double>{4, 0});
  EXPECT_GT(rates[1], 1);
  EXPECT_LT(rates[1], 1.5);
  for (int window = 0; window < 100; ++window) rates = RatesAfter(rates, std::vector<double>{4, 0});
  EXPECT_EQ(rates[1], 4) << "never more than the fastest";
}

TEST(IsFastest, IsOneRankAlone) {
  EXPECT_TRUE(IsFastest(std::vector<double>{1, 1, 1}, 0));
  EXPECT_FALSE(IsFastest(std::vector<double>{1, 1, 1}, 1));
  EXPECT_TRUE(IsFastest(std::vector<double>{1, 3, 2}, 1));
}

TEST(IsWorthClaiming, WhereItIsDoneBeforeTheOthersAreThroughWithTheRest) {
  const std::vector<double> equal = {1, 1};
  const std::vector<double> uneven = {4, 1};
  EXPECT_TRUE(IsWorthClaiming(equal, 1, 1, 1));
  EXPECT_FALSE(IsWorthClaiming(equal, 1, 1, 0)) << "nothing is left";
  EXPECT_TRUE(IsWorthClaiming(uneven, 0, 1, 1)) << "the fastest takes whatever is left";
  // Including the batch that it holds it would need 2 s; the others finish their 6 and those they hold
  // earlier.
  EXPECT_FALSE(IsWorthClaiming(uneven, 1, 1, 6));
  EXPECT_TRUE(IsWorthClaiming(uneven, 1, 1, 7));
  EXPECT_TRUE(IsWorthClaiming(uneven, 1, 0, 3)) << "it holds none";
}

struct Simulated {
  int64_t done = 0;
  double end_of_fastest = 0;
  double end = 0;
};

// Simulates a window in which each rank holds one batch in progress and one prefetched.
Simulated Simulate(const std::vector<double>& rates, int64_t batches) {
  struct Rank {
    bool has_ready = false;
    bool has_finished = false;
    double free_at = 0;
  };
  std::vector<Rank> ranks(rates.size());
  int64_t left = batches;
  Simulated result;
  const auto claim = [&](std::size_t i, int64_t held) {
    ranks[i].has_ready = IsWorthClaiming(rates, static_cast<int>(i), held, left);
    if (ranks[i].has_ready) --left;
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) claim(i, 0);
  while (true) {
    std::optional<std::size_t> next;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (!ranks[i].has_finished && (!next.has_value() || ranks[i].free_at < ranks[*next].free_at)) next = i;
    }
    if (!next.has_value()) break;
    Rank& rank = ranks[*next];
    if (rank.has_ready) {
      rank.free_at += 1 / rates[*next];
      ++result.done;
      claim(*next, 1);
      continue;
    }
    rank.has_finished = true;
    result.end = std::max(result.end, rank.free_at);
    if (IsFastest(rates, static_cast<int>(*next))) result.end_of_fastest = rank.free_at;
  }
  return result;
}

TEST(IsWorthClaiming, LeavesNothingAndKeepsNoRankWaitingForLong) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> rate(0.05, 1);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t world = 2 + random() % 7;
    std::vector<double> rates;
    for (std::size_t i = 0; i < world; ++i) rates.push_back(rate(random));
    const auto batches = static_cast<int64_t>(random() % 200);
    const Simulated window = Simulate(rates, batches);
    ASSERT_EQ(window.done, batches);
    // Batches of a rank with average speed.
    const double others = std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(world);
    ASSERT_LE(window.end - window.end_of_fastest, 2.5 / others)
        << ::testing::PrintToString(rates) << " " << batches;
  }
}

TEST(IsWorthClaiming, LetsARankFourTimesAsSlowCostTheOthersLittle) {
  for (const std::size_t world : {2U, 4U, 8U}) {
    std::vector<double> rates(world, 1);
    rates.back() = 0.25;
    const int64_t batches = 16 * static_cast<int64_t>(world);
    const Simulated window = Simulate(rates, batches);
    EXPECT_LE(window.end,
              1.08 * static_cast<double>(batches) / std::accumulate(rates.begin(), rates.end(), 0.0))
        << world;
  }
}

}  // namespace
}  // namespace lockstep::train

#include "runtime/train/step/step_totals.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::train {
namespace {

constexpr Requests kAll{.yield = true, .stop = true, .save = true, .profile = {.first = 12, .last = 15}};

TEST(StepTotals, AreTheSumsOfWhatRanksPut) {
  std::array<double, StepTotals::kSize> sums{};
  for (const StepTotals& of_rank : {StepTotals::Of(30, 2, kAll), StepTotals::Of(31, 1, {.stop = true})}) {
    std::array<double, StepTotals::kSize> mine{};
    of_rank.CopyTo(std::span<double>(mine));
    for (std::size_t i = 0; i < sums.size(); ++i) sums.at(i) += mine.at(i);
  }
  const StepTotals all{.count = 61,
                       .corrupt = 3,
                       .yielding = 1,
                       .stopping = 2,
                       .saving = 1,
                       .profile = {.first = 12, .last = 15}};
  EXPECT_EQ(StepTotals::From(std::span<const double>(sums)), all);
}

TEST(StepTotals, AreAddedUpAsTheyAreSummed) {
  StepTotals all = StepTotals::Of(30, 2, kAll);
  all += StepTotals::Of(31, 1, {.stop = true});
  std::array<int64_t, StepTotals::kSize> row{};
  all.CopyTo(std::span<int64_t>(row));
  EXPECT_EQ(StepTotals::From(std::span<const int64_t>(row)), all);
  EXPECT_EQ(all.count, 61);
  EXPECT_EQ(all.stopping, 2);
  EXPECT_EQ(all.profile.last, 15);
}

}  // namespace
}  // namespace lockstep::train

#include "runtime/train/shards/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <set>

namespace lockstep::train {

void PrintTo(const Range& range, std::ostream* out) { *out << "[" << range.begin << "," << range.end << ")"; }

namespace {

using Ranges = std::vector<Range>;

TEST(CutEvenly, GivesEachElementToOnePartAndEachPartNearlyAsMany) {
  const std::vector<std::vector<int64_t>> models = {
      {1000}, {784 * 64, 64, 640, 10}, {3, 1, 7, 2}, {100, 0, 50}};
  for (const auto& sizes : models) {
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    for (const int parts : {1, 2, 3, 4, 7, 20}) {
      const Ranges cut = CutEvenly(sizes, parts);
      ASSERT_EQ(cut.size(), static_cast<std::size_t>(parts));
      int64_t end = 0;
      for (const Range& part : cut) {
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.size(), 0);
        EXPECT_LE(part.size(), total / parts + 16) << parts << " parts of " << total;
        end = part.end;
      }
      EXPECT_EQ(end, total);
    }
  }
}

TEST(CutBetweenTensors, GivesEachTensorToOnePartAndCutsNearestToEqualParts) {
  const std::vector<std::vector<int64_t>> models = {
      {1000}, {784 * 64, 64, 640, 10}, {3, 1, 7, 2}, {100, 0, 50}, {5, 5, 5, 5, 5, 5}, {0, 1, 2, 90, 3, 0},
      {}};
  for (const auto& sizes : models) {
    std::vector<int64_t> ends = {0};
    for (const int64_t size : sizes) ends.push_back(ends.back() + size);
    const int64_t total = ends.back();
    for (const int parts : {1, 2, 3, 4, 7, 20}) {
      const Ranges cut = CutBetweenTensors(sizes, parts);
      ASSERT_EQ(cut.size(), static_cast<std::size_t>(parts));
      int64_t end = 0;
      for (int part = 0; part < parts; ++part) {
        EXPECT_EQ(cut[static_cast<std::size_t>(part)].begin, end);
        end = cut[static_cast<std::size_t>(part)].end;
        int64_t nearest = total;
        const int64_t equal = total * (part + 1) / parts;
        for (const int64_t one : ends) nearest = std::min(nearest, std::abs(one - equal));
        EXPECT_NE(std::find(ends.begin(), ends.end(), end), ends.end()) << end << " is inside a tensor";
        EXPECT_EQ(std::abs(end - equal), nearest) << part << " of " << parts << " parts of " << total;
      }
      EXPECT_EQ(end, total);
    }
  }
  EXPECT_EQ(CutBetweenTensors(std::vector<int64_t>{5, 5, 5, 5, 5, 5}, 3),
            (Ranges{{0, 10}, {10, 20}, {20, 30}}));
}

TEST(PartsHeldBy, KeepsEachPartInAsManyPodsAsThereAreCopies) {
  for (const int pods : {1, 2, 3, 5}) {
    for (const int ranks_in_pod : {1, 2, 4}) {
      for (const int copies : {1, 2, 3, 4}) {
        const int holders = pods * ranks_in_pod;
        std::vector<std::set<int>> ranks(static_cast<std::size_t>(holders));  // that hold a part
        std::vector<std::set<int>> in_pods(static_cast<std::size_t>(holders));
        for (int rank = 0; rank < holders; ++rank) {
          const std::vector<int> parts = PartsHeldBy(rank, holders, holders, {copies, ranks_in_pod});
          EXPECT_EQ(parts.front(), rank);
          for (const int part : parts) {
            ranks.at(static_cast<std::size_t>(part)).insert(rank);
            in_pods.at(static_cast<std::size_t>(part)).insert(rank / ranks_in_pod);
          }
        }
        for (const auto& holding : ranks) EXPECT_EQ(std::ssize(holding), std::min(copies, holders));
        for (const auto& holding : in_pods)
          EXPECT_EQ(std::ssize(holding), std::min(copies, pods)) << pods << " pods of " << ranks_in_pod;
      }
    }
  }
}

TEST(GroupSize, IsTheSmallestThatDividesTheRanksAndIsLargeEnough) {
  struct Case {
    int holders;
    int at_least;
    int size;
  };
  for (const auto& [holders, at_least, size] :
       {Case{8, 0, 8}, Case{8, 2, 2}, Case{8, 3, 4}, Case{8, 8, 8}, Case{8, 9, 8}, Case{6, 4, 6},
        Case{9, 2, 3}, Case{7, 2, 7}, Case{1, 4, 1}})
    EXPECT_EQ(GroupSize(holders, at_least), size) << at_least << " of " << holders;
}

TEST(PartsHeldBy, CountsGroupsAsCopiesOfEachOther) {
  for (const int groups : {1, 2, 3}) {
    for (const int group : {1, 2, 4}) {
      for (const int copies : {1, 2, 3, 4}) {
        const int holders = groups * group;
        std::vector<int> held(static_cast<std::size_t>(group));  // how often a part is, in whatever group
        for (int rank = 0; rank < holders; ++rank) {
          const std::vector<int> parts = PartsHeldBy(rank, holders, group, {copies, 1});
          EXPECT_EQ(parts.front(), rank);
          for (const int part : parts) {
            EXPECT_EQ(part / group, rank / group) << "a part of another group";
            ++held.at(static_cast<std::size_t>(part % group));
          }
        }
        const int enough = std::min(copies, holders);
        for (const int times : held) {
          EXPECT_GE(times, enough);
          EXPECT_LT(times, enough + groups) << groups << " groups of " << group;
        }
      }
    }
  }
}

TEST(PartsHeldBy, TakesNeighboursWhereAPodHasFewerRanks) {
  EXPECT_EQ(PartsHeldBy(2, 3, 3, {2, 2}), (std::vector<int>{2, 0}));
  EXPECT_EQ(PartsHeldBy(0, 3, 3, {4, 2}), (std::vector<int>{0, 1, 2}));
}

TEST(Section, HasEachElementOnceInItsOrder) {
  const Ranges ranges = {{10, 14}, {3, 3}, {20, 21}, {0, 3}};
  EXPECT_EQ(Section(ranges, 0, 8), (Ranges{{10, 14}, {20, 21}, {0, 3}}));
  EXPECT_EQ(Section(ranges, 0, 3), (Ranges{{10, 13}}));
  EXPECT_EQ(Section(ranges, 3, 3), (Ranges{{13, 14}, {20, 21}, {0, 1}}));
  EXPECT_EQ(Section(ranges, 6, 3), (Ranges{{1, 3}}));
  EXPECT_EQ(Section(ranges, 8, 3), Ranges{});
}

TEST(CutEvenly, CutsATensorAtMultiplesOfSixteenOfItsOwnElements) {
  const std::vector<int64_t> sizes = {5, 1000, 37};
  for (const int parts : {2, 3, 5}) {
    for (const Range& part : CutEvenly(sizes, parts)) {
      if (part.begin <= 5 || part.begin >= 1005) continue;
      EXPECT_EQ((part.begin - 5) % 16, 0) << parts;
    }
  }
}

TEST(Ranges, AreIntersectedAndSubtractedPieceByPiece) {
  EXPECT_EQ(Common({{0, 10}, {20, 30}}, {{5, 22}, {25, 26}}), (Ranges{{5, 10}, {20, 22}, {25, 26}}));
  EXPECT_EQ(Common({{0, 10}}, {{10, 20}}), Ranges{});
  EXPECT_EQ(Without({{0, 10}, {20, 30}}, {5, 22}), (Ranges{{0, 5}, {22, 30}}));
  EXPECT_EQ(Without({{0, 10}}, {3, 4}), (Ranges{{0, 3}, {4, 10}}));
  EXPECT_EQ(Without({{0, 10}}, {12, 40}), (Ranges{{0, 10}}));
  EXPECT_EQ(SizeOf({{0, 10}, {20, 30}}), 20);
}

constexpr Version kOld{.step = 7, .round = 2};
constexpr Version kNew{.step = 8, .round = 3};
constexpr int64_t kTotal = 30;

TEST(NewestWhole, IsTheNewestOfWhichNothingIsMissing) {
  const Holding first{kNew, {0, 10}};
  const Holding middle{kNew, {10, 20}};
  const Holding last{kNew, {20, 30}};
  EXPECT_EQ(NewestWhole({{kNew, {first}}, {kNew, {middle}}, {kNew, {last}}}, {kTotal}), kNew);
  // This rank has not received the others' parts of the parameters, but sent its own.
  EXPECT_EQ(NewestWhole({{kNew, {first}}, {kOld, {middle}}, {kOld, {last}}}, {kTotal}), kNew);
  EXPECT_EQ(NewestWhole({{kNew, {first}}, {{}, {}}, {kNew, {last}}}, {kTotal}), std::nullopt);
  EXPECT_EQ(MissingOf({{kNew, {first}}, {kNew, {last}}}, kNew, {kTotal}), (Ranges{{10, 20}}));
  // Moments are useless without their parameters.
  EXPECT_EQ(NewestWhole({{kOld, {first, middle, last}}}, {kTotal}), std::nullopt);
}

TEST(NewestWhole, IsAnOlderOneWhereTheNewestIsNotWhole) {
  const Holding ahead{kNew, {0, 15}};
  const Holding first{kOld, {0, 15}};
  const Holding last{kOld, {15, 30}};
  EXPECT_EQ(NewestWhole({{kOld, {ahead, first}}, {kOld, {last}}}, {kTotal}), kOld);
  EXPECT_EQ(NewestWhole({{kNew, {ahead, first}}, {kOld, {last}}}, {kTotal}), kOld);
}

TEST(NewestWhole, TakesAStepThatWasMadeAgainForAnother) {
  constexpr Version kAgain{.step = 8, .round = 4};
  EXPECT_EQ(NewestWhole({{kNew, {{kNew, {0, 15}}}}, {kAgain, {{kAgain, {15, 30}}}}}, {kTotal}), std::nullopt);
}

TEST(NewestWhole, NeedsNothingBeforeTheFirstStepOrWithoutState) {
  constexpr Version kFirst{.step = 0, .round = 5};
  EXPECT_EQ(NewestWhole({{{}, {}}, {kFirst, {}}}, {kTotal}), kFirst);
  EXPECT_EQ(NewestWhole({{{}, {}}, {{}, {}}}, {kTotal}), std::nullopt);
  EXPECT_EQ(NewestWhole({{kOld, {}}, {kNew, {}}}, {0}), kNew);
  // Not if a rank had more steps: then there are checkpoints.
  EXPECT_EQ(NewestWhole({{kFirst, {}}, {kNew, {{kNew, {0, 15}}}}}, {kTotal}), std::nullopt);
  // Elements that are not zero then have to be held.
  EXPECT_EQ(NewestWhole({{kFirst, {}}}, {kTotal, false}), std::nullopt);
  EXPECT_EQ(NewestWhole({{kFirst, {{kFirst, {0, kTotal}}}}}, {kTotal, false}), kFirst);
}

TEST(GivenBy, TakesEachElementOnceWhicheverRankHoldsIt) {
  const std::vector<Holder> holders = {{kNew, {{kNew, {0, 20}}, {kOld, {0, 30}}}},
                                       {kNew, {{kNew, {10, 30}}}}};
  EXPECT_EQ(GivenBy(holders, kNew, kTotal), (std::vector<Ranges>{{{0, 20}}, {{20, 30}}}));
}

TEST(WantedBy, IsWhatARankDoesNotHoldExactly) {
  const std::vector<Holder> holders = {{kNew, {{kNew, {0, 10}}, {kNew, {10, 20}}}},
                                       {kNew, {{kOld, {10, 20}}, {kNew, {20, 30}}}},
                                       {kNew, {{kNew, {0, 30}}}},
                                       {{}, {}}};
  const std::vector<Ranges> assigned = {{{0, 10}, {10, 20}}, {{10, 20}, {20, 30}}, {{20, 30}}, {{0, 10}}};
  EXPECT_EQ(WantedBy(holders, kNew, assigned), (std::vector<Ranges>{{}, {{10, 20}}, {{20, 30}}, {{0, 10}}}));
}

}  // namespace
}  // namespace lockstep::train

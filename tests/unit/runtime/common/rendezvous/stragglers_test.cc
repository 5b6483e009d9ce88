#include "runtime/common/rendezvous/stragglers.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::rendezvous {
namespace {

// A round whose ranks report after each part of the window: 25 steps.
class StragglersTest : public ::testing::Test {
 protected:
  explicit StragglersTest(int world = 4) : ranks_(static_cast<std::size_t>(world)) { Begin(1); }

  void Begin(int64_t round) {
    round_ = round;
    stragglers_.BeginRound(round, static_cast<int>(ranks_.size()));
    EXPECT_FALSE(Report());  // their first report
  }
  bool Report() {
    bool has_changed = false;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i].rank = static_cast<int>(i);
      ranks_[i].work_round = round_;
      has_changed = stragglers_.Update(round_, {ranks_[i]}) || has_changed;
    }
    return has_changed;
  }
  // Seconds of computing per step and samples per step of each rank; 1 s and 8 samples by default.
  bool Part(const std::map<int, double>& seconds = {}, const std::map<int, int64_t>& samples = {}) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const int rank = static_cast<int>(i);
      ranks_[i].steps += 25;
      ranks_[i].compute_seconds += 25 * (seconds.contains(rank) ? seconds.at(rank) : 1);
      ranks_[i].samples += 25 * (samples.contains(rank) ? samples.at(rank) : 8);
    }
    return Report();
  }
  [[nodiscard]] const std::map<int, double>& found() const { return stragglers_.found(); }

  int64_t round_ = 0;
  std::vector<protocol::RankReport> ranks_;
  Stragglers stragglers_{{.factor = 1.5, .window_steps = 100}};
};

TEST_F(StragglersTest, OneThatIsSlowForAWindowIsFoundOnce) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Part({{2, 3.0}})) << i;
  EXPECT_TRUE(found().empty());
  EXPECT_TRUE(Part({{2, 3.0}}));
  EXPECT_EQ(found(), (std::map<int, double>{{2, 3.0}}));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Part({{2, 4.0}})) << "known";
}

// The members formed the round again with a new process, whose counters start at zero.
TEST_F(StragglersTest, ARankWhoseCountersBeginAgainIsMeasuredFromThere) {
  for (int i = 0; i < 4; ++i) (void)Part({{2, 3.0}});
  ranks_[2].steps += 25;
  EXPECT_FALSE(stragglers_.Update(round_, {ranks_[2]})) << "its part is made, the others' are not";
  ranks_[2] = {.rank = 2, .work_round = round_};
  EXPECT_FALSE(Part({{2, 3.0}})) << "without a part of its own it would be divided by no steps";
  for (int i = 0; i < 6; ++i) (void)Part({{2, 3.0}});
  EXPECT_EQ(found(), (std::map<int, double>{{2, 3.0}}));
}

TEST_F(StragglersTest, OneSlowStepIsNone) {
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(Part({{2, i % 4 == 0 ? 100.0 : 1.0}})) << i;
}

TEST_F(StragglersTest, OneThatIsSlowByLessThanTheFactorIsNone) {
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Part({{2, 1.49}}));
}

TEST_F(StragglersTest, IsNoneAnyMoreAfterAWindowThatWasNotSlow) {
  for (int i = 0; i < 4; ++i) (void)Part({{2, 3.0}});
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Part({{2, i % 4 == 3 ? 3.0 : 1.0}})) << "it comes and goes";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Part());
  EXPECT_TRUE(Part());
  EXPECT_TRUE(found().empty());
}

TEST_F(StragglersTest, WhoHasMoreSamplesIsNotSlow) {
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Part({{0, 2.0}}, {{0, 16}}));
}

TEST_F(StragglersTest, ASlowRankWithFewerSamplesIsNoStraggler) {
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Part({}, {{3, 2}}));
}

TEST_F(StragglersTest, ANewRoundResetsTheComparison) {
  for (int i = 0; i < 4; ++i) (void)Part({{2, 3.0}});
  ASSERT_FALSE(found().empty());
  Begin(2);
  EXPECT_TRUE(found().empty());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Part({{2, 3.0}}));
  EXPECT_TRUE(Part({{2, 3.0}}));
}

TEST_F(StragglersTest, ReportsOfAnotherRoundDoNotCount) {
  for (int i = 0; i < 20; ++i) {
    for (int rank = 0; rank < 4; ++rank) {
      const auto step = static_cast<double>(i);
      const protocol::RankReport old{.rank = rank,
                                     .work_round = 0,
                                     .steps = 100 * i,
                                     .samples = 800 * i,
                                     .compute_seconds = rank == 2 ? 1000 * step : step};
      EXPECT_FALSE(stragglers_.Update(1, {old})) << "its process has made no step in the new round yet";
    }
  }
}

TEST_F(StragglersTest, NothingIsSaidBeforeEveryRankHasMadeAPart) {
  for (int i = 0; i < 20; ++i) {
    ranks_[2].steps += 25;
    ranks_[2].compute_seconds += 100;
    EXPECT_FALSE(Report());
  }
}

class TwoRanksStragglersTest : public StragglersTest {
 protected:
  TwoRanksStragglersTest() : StragglersTest(2) {}
};

TEST_F(TwoRanksStragglersTest, TheSlowerIsComparedWithTheFaster) {
  for (int i = 0; i < 4; ++i) (void)Part({{1, 2.0}});
  EXPECT_EQ(found(), (std::map<int, double>{{1, 2.0}}));
}

class OneRankStragglersTest : public StragglersTest {
 protected:
  OneRankStragglersTest() : StragglersTest(1) {}
};

TEST_F(OneRankStragglersTest, IsNeverSlowerThanItself) {
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Part({{0, i}}));
}

}  // namespace
}  // namespace lockstep::rendezvous

#include "runtime/witness/page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

namespace lockstep::witness {
namespace {

// Writes as lockstep_witness.py does: through the path, at the index of a word.
void Write(const Page& page, int word, int64_t value) {
  std::fstream file(page.path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(word * 8);
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
  ASSERT_TRUE(file.flush());
}

TEST(WitnessPage, IsEmptyBeforeTheFirstStep) {
  const Page page = Page::Create().value();
  const Observation seen = page.Read();
  EXPECT_EQ(seen.pid, 0);
  EXPECT_EQ(seen.steps, 0);
  EXPECT_EQ(seen.resumed_step, -1);
  EXPECT_FALSE(seen.may_wait_for_peers);
  EXPECT_EQ(seen.error, "");
}

TEST(WitnessPage, ReadsWhatAnotherProcessWritesThroughItsPath) {
  const Page page = Page::Create().value();
  Write(page, 1, 4321);
  Write(page, 2, 17);
  Write(page, 3, 100);
  Write(page, 4, static_cast<int64_t>(Activity::kSave));
  Write(page, 5, 1);
  Write(page, 6, 2'500'000'000);
  Write(page, 8 + static_cast<int>(Activity::kBackward), 1'500'000'000);
  Write(page, 16, 0x6f6f6c);  // "loo"
  const Observation seen = page.Read();
  EXPECT_EQ(seen.pid, 4321);
  EXPECT_EQ(seen.steps, 17);
  EXPECT_EQ(seen.resumed_step, 100);
  EXPECT_EQ(seen.activity, Activity::kSave);
  EXPECT_TRUE(seen.may_wait_for_peers);
  EXPECT_DOUBLE_EQ(seen.newest_step_at, 2.5);
  EXPECT_DOUBLE_EQ(seen.seconds.at(static_cast<std::size_t>(Activity::kBackward)), 1.5);
  EXPECT_EQ(seen.error, "loo");
}

TEST(WitnessPage, AnUnknownActivityCountsAsAStep) {
  const Page page = Page::Create().value();
  Write(page, 4, 99);
  EXPECT_EQ(page.Read().activity, Activity::kStep);
}

TEST(WitnessPage, BoundsWhatAProgramMayWrite) {
  const Page page = Page::Create().value();
  Write(page, 2, std::numeric_limits<int64_t>::max());
  Write(page, 3, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(page.Read().steps, 1'000'000'000'000);
  EXPECT_EQ(page.Read().resumed_step, 1'000'000'000'000);
}

TEST(WitnessPage, MovesWithItsMemory) {
  Page page = Page::Create().value();
  Write(page, 2, 5);
  const Page moved = std::move(page);
  EXPECT_EQ(moved.Read().steps, 5);
}

}  // namespace
}  // namespace lockstep::witness

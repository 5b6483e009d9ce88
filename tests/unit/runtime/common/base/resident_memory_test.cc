#include "runtime/common/base/resident_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep {
namespace {

TEST(ResidentMemoryTest, IsWithoutWhatIsShared) {
  EXPECT_EQ(ResidentBytesOf("VmRSS: 700 kB\nRssAnon:\t100 kB\nRssFile:\t20 kB\nRssShmem:\t580 kB\n"),
            120 * 1024);
}

TEST(ResidentMemoryTest, OfAProcessThatHasEndedIsAbsent) {
  EXPECT_EQ(ResidentBytesOf("Name:\tlockstep\nState:\tZ (zombie)\n"), std::nullopt);
  EXPECT_EQ(ResidentBytes(-1), std::nullopt);
}

TEST(ResidentMemoryTest, OfThisProcessIsKnown) { EXPECT_GT(ResidentBytes(::getpid()).value_or(0), 1e5); }

}  // namespace
}  // namespace lockstep

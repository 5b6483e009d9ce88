#include "runtime/launch/process/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/base/log.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

TEST(LineCutter, JoinsWhatComesInPieces) {
  LineCutter cutter;
  EXPECT_THAT(cutter.Add("one\ntw"), ElementsAre("one"));
  EXPECT_THAT(cutter.Add("o\n\nthr"), ElementsAre("two", ""));
  EXPECT_EQ(cutter.Rest(), "thr");
  EXPECT_EQ(cutter.Rest(), std::nullopt);
}

TEST(LineCutter, CutsALineThatNeverEnds) {
  LineCutter cutter;
  const auto lines = cutter.Add(std::string(LineCutter::kLongestLine + 1, 'x'));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].size(), LineCutter::kLongestLine);
  EXPECT_EQ(cutter.Rest(), "x");
}

TEST(LastLines, KeepsTheNewest) {
  LastLines last;
  for (int i = 0; i < 100; ++i) last.Add(std::to_string(i));
  const std::string text = last.Text();
  EXPECT_TRUE(text.starts_with("80\n81\n")) << text;
  EXPECT_TRUE(text.ends_with("\n98\n99")) << text;
}

TEST(LastLines, StaysWithinItsBytesByWholeLines) {
  LastLines last;
  last.Add("first");
  last.Add(std::string(LastLines::kMostBytes - 3, 'x'));
  last.Add("ab");
  EXPECT_EQ(last.Text().size(), LastLines::kMostBytes);
  last.Add("c");
  EXPECT_EQ(last.Text(), "ab\nc");
}

TEST(LastLines, OfOneLongLineKeepsTheEnd) {
  LastLines last;
  last.Add(std::string(LastLines::kMostBytes, 'x') + "the end");
  EXPECT_EQ(last.Text().size(), LastLines::kMostBytes);
  EXPECT_TRUE(last.Text().ends_with("the end"));
}

TEST(LastLines, LeaveOutWhatOurOwnLogReportsAtLevelInfo) {
  const auto text_of = [](const std::string& line) {
    LastLines last;
    last.Add(line);
    return last.Text();
  };
  for (const auto& [write, level] : {std::pair{&log::Info, "info"}, std::pair{&log::Error, "error"}}) {
    ::testing::internal::CaptureStderr();
    write("an interpreter is parked", {{"pid", 1}});
    std::string line = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(line.ends_with("}\n")) << line;
    line.pop_back();
    EXPECT_EQ(text_of(line), std::string(level) == "info" ? "" : line);
  }
  const std::string of_the_program = R"({"level":"info","message":"epoch 3"})";
  EXPECT_EQ(text_of(of_the_program), of_the_program);
}

TEST(Labelled, SaysWhereALineComesFrom) {
  EXPECT_EQ(Labelled("hello", {.local_rank = 1}), "[local rank 1] hello");
  EXPECT_EQ(Labelled("hello", {.local_rank = 1, .round = 5, .rank = 2}), "[rank 2 round 5] hello");
}

TEST(Labelled, LeavesJsonReadable) {
  const RankPlace place{.local_rank = 1, .round = 5, .rank = 2};
  EXPECT_EQ(Labelled(R"({"a":1})", place), R"({"rank":2,"round":5,"a":1})");
  EXPECT_EQ(Labelled(R"({"round":4,"a":1})", place), R"({"rank":2,"round":4,"a":1})") << "its own is kept";
  EXPECT_EQ(Labelled(R"({"a":1})", {.local_rank = 1}), R"({"local_rank":1,"a":1})");
  EXPECT_EQ(Labelled(R"({"a":1)", place), R"([rank 2 round 5] {"a":1)") << "half an object is text";
}

}  // namespace
}  // namespace lockstep::launch

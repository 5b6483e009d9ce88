#include "runtime/launch/process/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/base/log.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

constexpr SteadyTime kFirst{};

TEST(LineCutter, JoinsWhatComesInPieces) {
  LineCutter cutter;
  EXPECT_THAT(cutter.Add("one\ntw", kFirst), ElementsAre(OutputLine{"one"}));
  EXPECT_THAT(cutter.Add("o\n\nthr", kFirst), ElementsAre(OutputLine{"two"}, OutputLine{""}));
  EXPECT_EQ(cutter.Rest(), "thr");
  EXPECT_EQ(cutter.Rest(), std::nullopt);
}

TEST(LineCutter, CutsALineThatNeverEnds) {
  LineCutter cutter;
  const auto lines = cutter.Add(std::string(LineCutter::kLongestLine + 1, 'x'), kFirst);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].text.size(), LineCutter::kLongestLine);
  EXPECT_EQ(cutter.Rest(), "x");
}

TEST(LineCutter, ShowsAProgressBarNowAndThen) {
  LineCutter cutter;
  EXPECT_THAT(cutter.Add("loading\n\r 0%", kFirst), ElementsAre(OutputLine{"loading"}));
  EXPECT_THAT(cutter.Add("\r 1%\r 2%\r 3%", kFirst), ElementsAre(OutputLine{" 0%", true}));
  EXPECT_THAT(cutter.Add("\r 4%", kFirst + LineCutter::kPause - Milliseconds(1)), ElementsAre());
  EXPECT_THAT(cutter.Add("\r     \r 5%", kFirst + LineCutter::kPause), ElementsAre(OutputLine{" 4%", true}));
  EXPECT_THAT(cutter.Add("\r 100%\nnext", kFirst + LineCutter::kPause), ElementsAre(OutputLine{" 100%"}));
  EXPECT_EQ(cutter.Rest(), "next");
  EXPECT_THAT(cutter.Add("\r     ", kFirst + 2 * LineCutter::kPause), ElementsAre());
  EXPECT_THAT(cutter.Add("\r 7%\r", kFirst + 2 * LineCutter::kPause), ElementsAre())
      << "nothing but blanks before it";
  EXPECT_EQ(cutter.Rest(), " 7%");
}

TEST(LineCutter, TakesACarriageReturnBeforeANewlineForAPartOfIt) {
  LineCutter cutter;
  EXPECT_THAT(cutter.Add("one\r\ntwo\r", kFirst), ElementsAre(OutputLine{"one"}));
  EXPECT_THAT(cutter.Add("\n\r\n", kFirst), ElementsAre(OutputLine{"two"}, OutputLine{""}));
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

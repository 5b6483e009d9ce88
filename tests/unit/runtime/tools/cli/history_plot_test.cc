#include "runtime/tools/cli/history_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "runtime/common/base/strings.h"

namespace lockstep::cli {
namespace {

using protocol::HistoryKind;
using protocol::HistoryRecord;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

HistoryRecord Step(int64_t step, double loss, double rate = 100) {
  return {.step = step, .loss = loss, .samples_per_second = rate};
}
HistoryRecord Evaluation(int64_t step, double loss, double accuracy) {
  return {.kind = HistoryKind::kEvaluation, .step = step, .loss = loss, .accuracy = accuracy};
}
HistoryRecord Round(int64_t round, int world, int64_t step, const std::string& source = "kept",
                    const std::string& cause = "") {
  return {.kind = HistoryKind::kRound,
          .round = round,
          .world = world,
          .step = step,
          .source = source,
          .cause = cause};
}

// All matches of the first group of a pattern.
std::vector<std::string> FindAll(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

// The part of the picture with one chart; empty if there is none.
std::string ChartOf(const std::string& svg, const std::string& id) {
  const std::size_t begin = svg.find("<g class=\"chart\" id=\"" + id + "\">");
  return begin == std::string::npos ? "" : svg.substr(begin, svg.find("</g>", begin) - begin);
}

TEST(PlotHistory, DrawsEachSeriesThroughItsPoints) {
  const std::string svg = PlotHistory(
      {Step(0, 4, 50), Step(50, 2, 100), Evaluation(50, 3, 0.25), Step(100, 0, 75), Evaluation(100, 1, 0.75)},
      "a job");
  // The frame of the first chart: x from 70 to 880, y from 240 (lowest) up to 60 (highest).
  const std::string loss = ChartOf(svg, "loss");
  EXPECT_THAT(FindAll(loss, "<polyline class=\"steps\" points=\"([^\"]*)\""),
              ElementsAre("70,60 475,150 880,240"));
  EXPECT_THAT(FindAll(loss, "<polyline class=\"tests\" points=\"([^\"]*)\""), ElementsAre("475,105 880,195"));
  EXPECT_THAT(FindAll(loss, "<circle [^>]*><title>([^<]*)"), ElementsAre("step 50: 3", "step 100: 1"));
  EXPECT_THAT(FindAll(loss, "class=\"tick\"[^>]*text-anchor=\"end\">([^<]*)"),
              ElementsAre("0", "1", "2", "3", "4"));
  EXPECT_THAT(FindAll(loss, "class=\"tick\"[^>]*\"middle\">([^<]*)"),
              ElementsAre("0", "20", "40", "60", "80", "100"));
  EXPECT_THAT(FindAll(ChartOf(svg, "accuracy"), "points=\"([^\"]*)\""), ElementsAre("475,470 880,290"));
  EXPECT_THAT(FindAll(ChartOf(svg, "samples/s"), "points=\"([^\"]*)\""),
              ElementsAre("70,700 475,520 880,610"));
  EXPECT_THAT(svg, HasSubstr(">a job</text>"));
}

TEST(PlotHistory, MarksRoundsAndRestartsWithTheirCauses) {
  const std::string svg = PlotHistory(
      {Round(1, 3, 0, "fresh"), Step(1, 2), Round(2, 2, 50, "kept", "Infrastructure: pod-1: <killed>"),
       Step(51, 1), Round(7, 1, 100, "checkpoint"), Step(100, 1)},
      "");
  EXPECT_THAT(FindAll(svg, "<g class=\"round\"><title>([^<]*)</title>"),
              ElementsAre("round 1, 3 ranks, from step 0",
                          "round 2, 2 ranks, from step 50: Infrastructure: pod-1: &lt;killed&gt;"));
  EXPECT_THAT(FindAll(svg, "<g class=\"round restart\"><title>([^<]*)</title>"),
              ElementsAre("round 7, 1 rank, from step 100, from a checkpoint"));
  EXPECT_THAT(FindAll(svg, "<g class=\"round[^\"]*\"><title>[^<]*</title><line [^>]*x1=\"([^\"]*)\""),
              ElementsAre("70", "475", "880"));
}

TEST(PlotHistory, NamesNoMoreRoundsThanThereIsRoomFor) {
  std::vector<HistoryRecord> history = {Step(0, 1)};
  for (int round = 1; round <= 500; ++round) history.push_back(Round(round, 2, round));
  const std::string svg = PlotHistory(history, "");
  EXPECT_EQ(FindAll(svg, "(<g class=\"round\"><title>)").size(), 500U);
  EXPECT_LE(FindAll(svg, "(>2 ranks</text>)").size(), 13U);
}

TEST(PlotHistory, LeavesAGapWhereALossWasNotFinite) {
  const std::string loss = ChartOf(
      PlotHistory({Step(0, 4), Step(25, 2), Step(50, std::nan("")), Step(75, 1), Step(100, 0)}, ""), "loss");
  EXPECT_THAT(FindAll(loss, "<polyline class=\"steps\" points=\"([^\"]*)\""),
              ElementsAre("70,60 272.5,150", "677.5,195 880,240"));
}

TEST(PlotHistory, LeavesOutWhatThereIsNothingOf) {
  const std::string svg = PlotHistory({Step(1, 1), Step(2, 1)}, "");
  EXPECT_EQ(ChartOf(svg, "accuracy"), "");
  EXPECT_NE(ChartOf(svg, "samples/s"), "");
}

TEST(PlotHistory, ShowsOnePointAloneAndFlatLines) {
  const std::string one = PlotHistory({Step(7, 0.5)}, "");
  EXPECT_THAT(FindAll(ChartOf(one, "loss"), "<circle class=\"steps\" cx=\"([^\"]*)\""), ElementsAre("475"));
  for (const std::string& svg : {one, PlotHistory({Step(0, 0), Step(1, 0)}, ""),
                                 PlotHistory({Step(0, 1e16), Step(1, 1e16 + 2)}, ""), PlotHistory({}, "")}) {
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  }
}

TEST(PlotHistory, KeepsNamesFromBecomingMarkup) {
  const std::string svg = PlotHistory({Step(1, 1)}, "a<b>&\x01");
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp; </text>"));
}

}  // namespace
}  // namespace lockstep::cli

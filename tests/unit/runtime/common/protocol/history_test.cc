#include "runtime/common/protocol/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using History = std::vector<HistoryRecord>;

HistoryRecord Step(int64_t step) {
  return {.kind = HistoryKind::kStep, .round = 1, .step = step, .loss = 1.0 / static_cast<double>(step + 1)};
}
HistoryRecord Evaluation(int64_t step) { return {.kind = HistoryKind::kEvaluation, .step = step}; }
HistoryRecord Round(int64_t round, int64_t step) {
  return {.kind = HistoryKind::kRound, .round = round, .step = step};
}

// "round 0", "step 1" …
std::vector<std::string> Names(const History& history) {
  std::vector<std::string> names;
  for (const HistoryRecord& record : history) {
    const char* const kind = record.kind == HistoryKind::kStep         ? "step "
                             : record.kind == HistoryKind::kEvaluation ? "evaluation "
                                                                       : "round ";
    names.push_back(kind + std::to_string(record.step));
  }
  return names;
}

std::ptrdiff_t Count(const History& history, HistoryKind kind) {
  return std::count_if(history.begin(), history.end(),
                       [&](const auto& record) { return record.kind == kind; });
}

// A process that enters round 1 at `first` and makes the steps up to `last`.
History Made(int64_t first, int64_t last, int64_t round = 1) {
  History history;
  Append(history, Round(round, first));
  for (int64_t step = first + 1; step <= last; ++step) Append(history, Step(step));
  return history;
}

TEST(History, SurvivesTheFile) {
  History history = {{.kind = HistoryKind::kRound,
                      .round = 3,
                      .world = 2,
                      .step = 40,
                      .source = "kept",
                      .cause = "a \"b\"\n"},
                     {.kind = HistoryKind::kStep,
                      .time = WallTime(std::chrono::seconds(1'767'225'600)),
                      .round = 3,
                      .step = 41,
                      .epoch = 0.65,
                      .loss = 0.25,
                      .samples_per_second = 1234.5,
                      .communication_ratio = 0.125},
                     {.kind = HistoryKind::kEvaluation, .step = 41, .loss = 0.5, .accuracy = 0.875}};
  const HistoryText read = ReadHistory(EncodeHistory(history));
  EXPECT_THAT(read.problems, IsEmpty());
  ASSERT_EQ(read.records.size(), 3U);
  EXPECT_EQ(read.records[0].kind, HistoryKind::kRound);
  EXPECT_EQ(read.records[0].round, 3);
  EXPECT_EQ(read.records[0].world, 2);
  EXPECT_EQ(read.records[0].source, "kept");
  EXPECT_EQ(read.records[0].cause, "a \"b\"\n");
  EXPECT_EQ(read.records[1].time, history[1].time);
  EXPECT_EQ(read.records[1].step, 41);
  EXPECT_EQ(read.records[1].epoch, 0.65);
  EXPECT_EQ(read.records[1].loss, 0.25);
  EXPECT_EQ(read.records[1].samples_per_second, 1234.5);
  EXPECT_EQ(read.records[1].communication_ratio, 0.125);
  EXPECT_EQ(read.records[2].kind, HistoryKind::kEvaluation);
  EXPECT_EQ(read.records[2].accuracy, 0.875);
}

TEST(History, KeepsTheStepWhoseLossIsNotFinite) {
  const HistoryText read = ReadHistory(EncodeHistory({{.step = 7, .loss = INFINITY}}));
  ASSERT_EQ(read.records.size(), 1U);
  EXPECT_TRUE(std::isnan(read.records[0].loss));
}

TEST(History, NamesBadLinesAndReadsTheOthers) {
  const std::string good = EncodeHistory({Step(5)});
  const std::string later = R"({"kind":"round","time":"2026-01-01T00:00:00Z","step":6,"added":"later"})";
  const HistoryText read =
      ReadHistory(good + "{\"kind\":\n" + R"({"kind":"stop","time":"now","step":"7"})" + "\n\n[1]\n" +
                  R"({"kind":"step","time":"2026-01-01T00:00:00Z"})" + "\n" + later);
  EXPECT_THAT(Names(read.records), ElementsAre("step 5", "round 6"));
  EXPECT_THAT(
      read.problems,
      ElementsAre("line 2: is not JSON: {\"kind\":", "line 3: kind: must be step, evaluation or round",
                  "line 3: time: must be an RFC 3339 time", "line 3: step: must be an integer, not \"7\"",
                  "line 5: document: must be an object", "line 6: step: is required"));
  EXPECT_THAT(ReadHistory(R"({"kind":"step","time":"2026-01-01T00:00:00Z","step":-1})").problems,
              ElementsAre(HasSubstr("step: must be at least 0")));
}

TEST(ContinueHistory, DropsTheStepsThatAreMadeAgain) {
  History stored = Made(0, 5);
  stored.push_back(Evaluation(5));
  for (int64_t step = 6; step <= 8; ++step) stored.push_back(Step(step));
  const History all = Continue(stored, Made(5, 7, /*round=*/2));  // restored to step 5
  EXPECT_THAT(Names(all), ElementsAre("round 0", "step 1", "step 2", "step 3", "step 4", "step 5",
                                      "evaluation 5", "round 5", "step 6", "step 7"));
}

TEST(ContinueHistory, TakesWhatOthersMadeWhileThisProcessWasInNoRound) {
  const History stored = Made(0, 9);
  History mine = Made(0, 3);
  HistoryRecord back = Round(5, 7);
  back.source = "peer";
  mine.push_back(back);
  for (int64_t step = 8; step <= 10; ++step) mine.push_back(Step(step));
  EXPECT_THAT(Names(Continue(stored, mine)),
              ElementsAre("round 0", "step 1", "step 2", "step 3", "step 4", "step 5", "step 6", "step 7",
                          "round 7", "step 8", "step 9", "step 10"));
}

TEST(ContinueHistory, RepeatsNothingWhereTheHistoriesJoin) {
  // Rank 0 recorded round 2 and the evaluation before it died; its successor was in both.
  const History stored = {Round(1, 0), Step(5), Round(2, 5), Evaluation(5), Step(6)};
  const History mine = {Round(2, 5), Evaluation(5), Step(6), Round(3, 6)};
  EXPECT_THAT(Names(Continue(stored, mine)),
              ElementsAre("round 0", "step 5", "round 5", "evaluation 5", "step 6", "round 6"));
  EXPECT_THAT(Names(Continue({Round(1, 5)}, {Round(2, 5)})), ElementsAre("round 5", "round 5"))
      << "two rounds";
}

TEST(ContinueHistory, GivesTheSameWhenItIsDoneAgain) {
  const History mine = Made(5, 9, 2);
  const History once = Continue(Made(0, 7), mine);
  EXPECT_EQ(Names(Continue(once, mine)), Names(once));
  EXPECT_EQ(Names(Continue(once, {})), Names(once));
}

TEST(ContinueHistory, OfATrainingThatBeginsAfreshIsItsOwn) {
  EXPECT_THAT(Names(Continue(Made(0, 9), Made(0, 2))), ElementsAre("round 0", "step 1", "step 2"));
}

TEST(ThinHistory, KeepsItBoundedAndEvenlySpread) {
  History history = Made(0, 60);
  Append(history, Round(2, 60));
  Append(history, Round(3, 61));
  Append(history, Evaluation(61));
  constexpr int64_t kSteps = 20'000;
  for (int64_t step = 61; step <= kSteps; ++step) {
    Append(history, Step(step));
    ASSERT_LE(history.size(), kMostRecords);
    ASSERT_EQ(history.back().step, step) << "the newest stays";
  }
  EXPECT_GE(history.size(), kMostRecords / 4);
  EXPECT_EQ(Count(history, HistoryKind::kRound), 3) << "few among many";
  EXPECT_EQ(Count(history, HistoryKind::kEvaluation), 1);
  EXPECT_EQ(history.front().kind, HistoryKind::kRound) << "where the process began";
  int64_t before = 0;
  int64_t largest = 0;
  for (const HistoryRecord& record : history) {
    EXPECT_GE(record.step, before);
    largest = std::max(largest, record.step - before);
    before = record.step;
  }
  EXPECT_LE(largest, 64);
  EXPECT_EQ(history.back().step, kSteps);
}

TEST(ThinHistory, ContinuesAThinnedHistory) {
  const History first = Made(0, 5'000);
  const History all = Continue(first, Made(4'000, 9'000, 2));
  EXPECT_LE(all.size(), kMostRecords);
  EXPECT_EQ(Count(all, HistoryKind::kRound), 2);
  EXPECT_EQ(all.front().step, 0);
  EXPECT_TRUE(
      std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.step < b.step; }));
}

TEST(ThinHistory, EndsWhateverTheStepsAre) {
  History history;
  for (std::size_t i = 0; i <= kMostRecords; ++i) history.push_back(Round(1, INT64_MAX));
  for (const HistoryKind kind : {HistoryKind::kStep, HistoryKind::kEvaluation}) {
    for (int i = 0; i < 40; ++i) history.push_back({.kind = kind, .step = INT64_MAX});
  }
  EXPECT_LE(Continue(history, {Round(2, INT64_MAX)}).size(), kMostRecords / 2);
}

}  // namespace
}  // namespace lockstep::protocol

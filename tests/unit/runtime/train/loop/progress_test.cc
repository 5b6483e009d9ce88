#include "runtime/train/loop/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <sstream>

#include "tests/support/fake_clock.h"

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;
using protocol::HistoryKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgressReporterTest : public ::testing::Test {
 protected:
  ProgressReporterTest() : ends_(Connect()), link_(Fd(ends_[0])), supervisor_(ends_[1]) {}

  static std::array<int, 2> Connect() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    return ends;
  }
  std::string Reported() {
    std::array<char, 65536> text{};
    const ssize_t bytes = ::recv(supervisor_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, bytes))};
  }
  void TakeStep(int64_t step, double loss) {
    clock_.Advance(500ms);
    progress_.Committed(step, {.loss = loss, .all = {.count = 32}});
  }

  const std::array<int, 2> ends_;
  protocol::ControlLink link_;
  Fd supervisor_;
  lockstep::testing::FakeClock clock_;
  PhaseClock phases_{clock_};
  ProgressReporter progress_{link_,
                             phases_,
                             clock_,
                             /*total_steps=*/100,
                             /*steps_per_epoch=*/10,
                             /*tokens_per_sample=*/4,
                             /*logs_always=*/false};
};

TEST_F(ProgressReporterTest, RecordsHowMuchOfAStepWasCommunication) {
  phases_.Add(TrainPhase::kReduce, 3);  // before the round
  progress_.EnterRound({.round = 2, .rank = 0, .world = 3}, 40, StateSource::kCheckpoint);
  phases_.Add(TrainPhase::kReduce, 0.125);
  phases_.Add(TrainPhase::kForward, 0.25);
  TakeStep(41, 0.5);
  EXPECT_DOUBLE_EQ(progress_.history().back().communication_ratio, 0.25);
  for (int64_t step = 42; step < 100; ++step) {
    TakeStep(step, 0.5);
    (void)Reported();  // the socket holds only so many
  }
  EXPECT_LT(progress_.history().back().communication_ratio, 0.01) << "of the newest steps";
}

TEST_F(ProgressReporterTest, KeepsTheHistoryOfWhatItTookPartIn) {
  progress_.EnterRound({.round = 2, .rank = 0, .world = 3}, 40, StateSource::kCheckpoint);
  TakeStep(41, 0.5);
  progress_.Evaluated({.loss = 0.75, .accuracy = 0.875});
  progress_.EnterRound({.round = 3, .rank = 0, .world = 2, .previous_end = "Infrastructure: pod-1: killed"},
                       41, StateSource::kKept);
  TakeStep(42, 0.25);
  const auto& history = progress_.history();
  ASSERT_EQ(history.size(), 5U);
  EXPECT_EQ(history[0].kind, HistoryKind::kRound);
  EXPECT_EQ(history[0].step, 40);
  EXPECT_EQ(history[0].world, 3);
  EXPECT_EQ(history[0].source, "checkpoint");
  EXPECT_EQ(history[1].kind, HistoryKind::kStep);
  EXPECT_EQ(history[1].step, 41);
  EXPECT_EQ(history[1].loss, 0.5);
  EXPECT_DOUBLE_EQ(history[1].epoch, 4.1);
  EXPECT_DOUBLE_EQ(history[1].samples_per_second, 64);
  EXPECT_EQ(history[1].time, clock_.Now() - 500ms);
  EXPECT_EQ(history[2].kind, HistoryKind::kEvaluation);
  EXPECT_EQ(history[2].step, 41);
  EXPECT_EQ(history[2].loss, 0.75);
  EXPECT_EQ(history[2].accuracy, 0.875);
  EXPECT_EQ(history[3].cause, "Infrastructure: pod-1: killed");
  EXPECT_EQ(history[3].source, "kept");
  EXPECT_EQ(history[4].round, 3);
  EXPECT_EQ(history[4].world, 2);
}

TEST_F(ProgressReporterTest, Rank0LogsTheRoundTheProgressAndTheEvaluations) {
  ::testing::internal::CaptureStderr();
  progress_.EnterRound({.round = 2, .rank = 0, .world = 3, .previous_end = "pod-1: killed"}, 40,
                       StateSource::kPeer);
  for (int64_t step = 41; step <= 70; ++step) TakeStep(step, 0.5);  // half a second each
  progress_.Evaluated({.loss = 0.75, .accuracy = 0.875});
  TakeStep(100, 0.125);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("\"previous_end\":\"pod-1: killed\""));
  EXPECT_THAT(log, HasSubstr("\"accuracy\":0.875"));
  EXPECT_THAT(log, HasSubstr("\"step\":100"));
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = log.find("\"training\"", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 3U) << "the round's first, one ten seconds later, the last of all: " << log;
}

// Half a second each, so the newest is always sent.
TEST_F(ProgressReporterTest, ReportsStepTimesTokensAndCommunicatedBytes) {
  progress_.EnterRound({.round = 2, .rank = 1, .world = 3}, 40, StateSource::kPeer);
  progress_.Communicated(4096);
  for (int64_t step = 41; step <= 42; ++step) {
    clock_.Advance(500ms);
    progress_.Committed(step, {.all = {.count = 32}, .local_count = 11});
  }
  std::optional<protocol::Usage> newest;
  std::istringstream lines(Reported());
  for (std::string line; std::getline(lines, line);) {
    const auto message = protocol::DecodeFromRank(line);
    ASSERT_TRUE(message.ok()) << line;
    if (const auto* usage = std::get_if<protocol::Usage>(&*message)) newest = *usage;
  }
  ASSERT_TRUE(newest.has_value());
  EXPECT_DOUBLE_EQ(newest->step_times.seconds, 1);
  EXPECT_EQ(newest->step_times.counts.at(8), 2) << "up to half a second";
  EXPECT_EQ(newest->tokens_total, 2 * 11 * 4);
  EXPECT_EQ(newest->communication_bytes_total, 4096);
}

TEST_F(ProgressReporterTest, ReportsHowManyRecordsOfAnEpochWereCorrupt) {
  const auto take = [this](int64_t step, int64_t corrupt) {
    clock_.Advance(500ms);
    progress_.Committed(step, {.all = {.count = 32, .corrupt = corrupt}, .local_corrupt = corrupt / 2});
  };
  ::testing::internal::CaptureStderr();
  progress_.EnterRound({.round = 2, .rank = 0, .world = 3}, 40, StateSource::kCheckpoint);
  take(41, 4);
  progress_.EnterRound({.round = 3, .rank = 0, .world = 2}, 41, StateSource::kKept);
  for (int64_t step = 42; step <= 50; ++step) take(step, step == 50 ? 2 : 0);
  for (int64_t step = 51; step <= 60; ++step) take(step, 0);
  take(61, 8);
  progress_.EnterRound({.round = 4, .rank = 0, .world = 2}, 60, StateSource::kCheckpoint);
  for (int64_t step = 61; step <= 70; ++step) take(step, step == 61 ? 8 : 0);
  progress_.Evaluated({.loss = 1, .corrupt = 7, .local_corrupt = 3});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("\"step\":50,\"epoch\":5.0,\"records\":6,\"since_step\":40"));
  EXPECT_THAT(log, HasSubstr("\"step\":70,\"epoch\":7.0,\"records\":8,\"since_step\":60"));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("\"step\":60,\"epoch\":6.0,\"records\"")));
  EXPECT_THAT(log, HasSubstr("corrupt records skipped in the evaluation"));
  (void)Reported();
  progress_.SendNow();
  EXPECT_THAT(Reported(), HasSubstr("\"corruptRecordsTotal\":14"));
}

TEST_F(ProgressReporterTest, OtherRanksAreSilent) {
  ::testing::internal::CaptureStderr();
  progress_.EnterRound({.round = 2, .rank = 1, .world = 3}, 40, StateSource::kPeer);
  TakeStep(41, 0.5);
  progress_.Evaluated({.loss = 0.75, .accuracy = 0.875});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(ProgressReporterTest, ReportsUncommittedStepsAndAWholeWindowAtItsEnd) {
  progress_.EnterRound({.round = 1, .world = 2}, 40, StateSource::kKept);
  clock_.Advance(500ms);
  progress_.UnderWay(3);
  EXPECT_THAT(Reported(), AllOf(HasSubstr(R"("step":40)"), HasSubstr(R"("stepsUnderWay":3)")));
  progress_.UnderWay(4);
  EXPECT_EQ(Reported(), "") << "not within 100 ms";
  clock_.Advance(500ms);
  progress_.Committed(48, {.steps = 8, .loss = 0.5, .all = {.count = 32}, .skipped = 2});
  EXPECT_THAT(Reported(), AllOf(HasSubstr(R"("step":48)"), HasSubstr(R"("stepsUnderWay":0)"),
                                HasSubstr(R"("stepsTotal":8)"), HasSubstr(R"("skippedStepsTotal":2)")));
  progress_.UnderWay(5);
  progress_.Repeating(6);
  progress_.EnterRound({.round = 2, .world = 1}, 48, StateSource::kKept);
  clock_.Advance(500ms);
  progress_.SendNow();
  EXPECT_THAT(Reported(), AllOf(HasSubstr(R"("stepsUnderWay":0)"), HasSubstr(R"("repeatedStepsTotal":6)")));
}

TEST_F(ProgressReporterTest, ReportsTheTimesOfAWindowWithTheStepsOfTheNext) {
  progress_.EnterRound({.round = 1, .world = 2}, 40, StateSource::kKept);
  phases_.Add(TrainPhase::kForward, 0.5);
  clock_.Advance(500ms);
  progress_.UnderWay(8);
  progress_.Committed(
      48, {.steps = 8, .all = {.count = 32}});  // at once: this rank did not have to wait for others
  clock_.Advance(500ms);
  (void)Reported();
  progress_.UnderWay(1);
  EXPECT_THAT(Reported(), AllOf(HasSubstr(R"("stepsTotal":8)"), HasSubstr(R"("forward":0.5)")));
}

TEST_F(ProgressReporterTest, ForgetsTheStepsThatWillBeMadeAgain) {
  progress_.EnterRound({.round = 1, .rank = 0, .world = 2}, 40, StateSource::kFresh);
  for (const int64_t step : {41, 42, 43}) TakeStep(step, 0.5);
  progress_.EnterRound({.round = 2, .rank = 0, .world = 1}, 41, StateSource::kCheckpoint);
  TakeStep(42, 0.25);
  std::vector<int64_t> steps;
  for (const auto& record : progress_.history()) steps.push_back(record.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{40, 41, 41, 42}));
  EXPECT_EQ(progress_.history()[2].source, "checkpoint");
  EXPECT_EQ(progress_.history().back().loss, 0.25);
}

TEST_F(ProgressReporterTest, ReportsAnEvaluationOnRank0Only) {
  progress_.EnterRound({.round = 1, .rank = 1, .world = 2}, 0, StateSource::kFresh);
  progress_.Evaluated({.loss = 0.75, .accuracy = 0.875});
  EXPECT_THAT(Reported(), Not(HasSubstr("0.875")));
  progress_.EnterRound({.round = 2, .rank = 0, .world = 1}, 0, StateSource::kKept);
  progress_.Evaluated({.loss = 0.75, .accuracy = 0.875});
  EXPECT_THAT(Reported(), HasSubstr("0.875"));
}

}  // namespace
}  // namespace lockstep::train

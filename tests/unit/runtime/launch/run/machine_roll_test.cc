#include "runtime/launch/run/machine_roll.h"

#include <gmock/gmock.h>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SteadyTime kStart = SteadyTime() + 1h;

class Roll : public ::testing::Test {
 protected:
  MachineAnswer Send(MachineReport report, SteadyTime now = kStart) { return roll.On(report, ended, now); }

  static MachineReport Report(WorkerState state, const std::string& worker = "w1", int exit_code = 0) {
    return {.machine = 1,
            .incarnation = "i1",
            .manifest = "m",
            .state = state,
            .worker = state == WorkerState::kNone ? "" : worker,
            .end = {.exit_code = exit_code}};
  }

  std::vector<std::string> ends;
  std::vector<std::string> lost;
  Order verdict = Order::kRun;
  std::optional<RunEnd> ended;
  MachineRoll roll{
      {.count = 3, .manifest = "m", .job_uid = "uid", .silence = 10s},
      {.on_end =
           [this](int, const std::string& worker, const WorkerEnd&) {
             ends.push_back(worker);
             return verdict;
           },
       .on_lost = [this](int, const std::string& worker, const std::string&) { lost.push_back(worker); }}};
};

TEST_F(Roll, LetsAMachineStartItsWorker) {
  const MachineAnswer answer = Send(Report(WorkerState::kNone));
  EXPECT_EQ(answer.order, Order::kRun);
  EXPECT_EQ(answer.job_uid, "uid");
  EXPECT_FALSE(roll.AnyRuns(kStart));
  EXPECT_EQ(Send(Report(WorkerState::kRuns)).order, Order::kRun);
  EXPECT_TRUE(roll.AnyRuns(kStart));
  EXPECT_FALSE(roll.AnyRuns(kStart + 11s)) << "not heard for longer";
}

TEST_F(Roll, JudgesEachEndOnceHoweverOftenItIsReported) {
  (void)Send(Report(WorkerState::kRuns));
  EXPECT_EQ(Send(Report(WorkerState::kEnded, "w1", 1)).order, Order::kRun);
  EXPECT_EQ(Send(Report(WorkerState::kEnded, "w1", 1)).order, Order::kRun) << "the first answer may be lost";
  verdict = Order::kRest;
  EXPECT_EQ(Send(Report(WorkerState::kEnded, "w2")).order, Order::kRest);
  EXPECT_EQ(Send(Report(WorkerState::kEnded, "w2")).order, Order::kRest);
  EXPECT_THAT(ends, ElementsAre("w1", "w2"));
}

TEST_F(Roll, TellsOfTheEndUntilTheMachineHasNothingLeft) {
  (void)Send(Report(WorkerState::kRuns));
  ended = RunEnd{3, "why"};
  const MachineAnswer answer = Send(Report(WorkerState::kRuns));
  EXPECT_EQ(answer.order, Order::kEnd);
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(answer.reason, "why");
  EXPECT_TRUE(roll.AwaitsAny(kStart)) << "its worker still saves";
  EXPECT_EQ(Send(Report(WorkerState::kEnded, "w1", 143)).order, Order::kEnd);
  EXPECT_FALSE(roll.AwaitsAny(kStart));
}

TEST_F(Roll, DoesNotWaitForAMachineThatIsSilent) {
  (void)Send(Report(WorkerState::kRuns));
  EXPECT_TRUE(roll.AwaitsAny(kStart + 10s));
  EXPECT_FALSE(roll.AwaitsAny(kStart + 11s));
}

TEST_F(Roll, LetsAMachineLeaveWithoutAnotherWorker) {
  (void)Send(Report(WorkerState::kRuns));
  MachineReport report = Report(WorkerState::kEnded, "w1", 143);
  report.is_leaving = true;
  EXPECT_EQ(Send(report).order, Order::kRest);
  EXPECT_THAT(ends, IsEmpty()) << "nobody's failure";
  EXPECT_THAT(lost, ElementsAre("w1"));
  EXPECT_FALSE(roll.AwaitsAny(kStart));
}

TEST_F(Roll, CountsAWorkerThatWasThroughAsItsMachineLeft) {
  (void)Send(Report(WorkerState::kRuns));
  MachineReport report = Report(WorkerState::kEnded, "w1", 0);
  report.is_leaving = true;
  (void)Send(report);
  EXPECT_THAT(ends, ElementsAre("w1"));
}

TEST_F(Roll, GivesThePlaceToAMachineThatWasStartedAgain) {
  (void)Send(Report(WorkerState::kRuns));
  MachineReport again = Report(WorkerState::kNone);
  again.incarnation = "i2";
  EXPECT_EQ(Send(again).order, Order::kRun);
  EXPECT_THAT(lost, ElementsAre("w1"));
  const MachineAnswer answer = Send(Report(WorkerState::kRuns));
  EXPECT_EQ(answer.order, Order::kEnd) << "the older one, should it live";
  EXPECT_EQ(answer.code, 6);
}

TEST_F(Roll, RefusesAnotherManifestAndUnknownMachines) {
  MachineReport report = Report(WorkerState::kNone);
  report.manifest = "other";
  EXPECT_EQ(Send(report).code, 2);
  EXPECT_THAT(Send(report).reason, HasSubstr("the manifest of machine 1 differs from that of machine 0"));
  for (const int machine : {-1, 0, 3}) {
    report = Report(WorkerState::kNone);
    report.machine = machine;
    EXPECT_EQ(Send(report).order, Order::kEnd) << machine;
    EXPECT_EQ(Send(report).code, 2) << machine;
  }
  EXPECT_FALSE(roll.AwaitsAny(kStart));
}

TEST(RunPolicy, StartsAgainWhatMayDoBetterNextTime) {
  RunPolicy policy(1, false);
  EXPECT_EQ(policy.Judge({.exit_code = 143}, false).order, Order::kRun) << "charged to nobody";
  EXPECT_EQ(policy.Judge({.exit_code = 137, .signal = 9}, false).order, Order::kRun);
  const Verdict verdict = policy.Judge({.exit_code = 1, .reason = "why"}, false);
  EXPECT_EQ(verdict.order, Order::kEnd);
  ASSERT_TRUE(verdict.end.has_value());
  EXPECT_EQ(verdict.end->code, 1);
  EXPECT_EQ(verdict.end->reason, "failurePolicy.maxRestarts is used up: why");
}

TEST(RunPolicy, EndsTheJobWhereTryingAgainCannotHelp) {
  const Verdict verdict = RunPolicy(9, false).Judge({.exit_code = 3, .reason = "why"}, false);
  EXPECT_EQ(verdict.order, Order::kEnd);
  EXPECT_EQ(verdict.end->code, 3);
  EXPECT_EQ(RunPolicy(9, true).Judge({.exit_code = 3}, false).order, Order::kRun)
      << "a program's codes are its own";
}

TEST(RunPolicy, RestartsNoWorkerThatHasFinishedOrFailsAfterTheEnd) {
  RunPolicy policy(0, false);
  EXPECT_EQ(policy.Judge({.exit_code = 0}, false).order, Order::kRest);
  EXPECT_EQ(policy.Judge({.exit_code = 1}, true).order, Order::kRest);
  EXPECT_EQ(policy.Judge({.exit_code = 0, .signal = 9}, false).order, Order::kEnd);
}

TEST(TimeToEnd, GivesThoseWhoSaveTheGracePeriod) {
  EXPECT_EQ(TimeToEnd(143, 120), 125s);
  EXPECT_EQ(TimeToEnd(3, 120), 10s);
}

}  // namespace
}  // namespace lockstep::launch

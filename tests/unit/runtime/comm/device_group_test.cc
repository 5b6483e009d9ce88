#include "runtime/comm/device_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <future>
#include <thread>

#include "tests/unit/runtime/comm/fake_device.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using testing::ExpectAllSucceed;
using ::testing::HasSubstr;
using testing::kCollectiveLimit;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

std::string ProblemOf(const std::vector<std::string>& ids) {
  const Result<void> checked = CheckDevices(ids, 0);
  return checked.ok() ? "" : checked.error().message;
}

TEST(CheckDevices, WantsOneForEachRankOrNone) {
  EXPECT_EQ(ProblemOf({"GPU-a", "GPU-b", "GPU-c"}), "");
  EXPECT_EQ(ProblemOf({"none", "none"}), "");
  EXPECT_EQ(ProblemOf({"none"}), "");
  EXPECT_EQ(ProblemOf({"GPU-a", "GPU-b", "GPU-a"}),
            "ranks 0 and 2 are on one device, GPU-a: each rank needs one of its own");
  EXPECT_EQ(ProblemOf({"GPU-b", "none", "GPU-a"}),
            "rank 1 has no device, and rank 2 has GPU-a: all ranks need one, or none");
}

TEST(CheckDevices, SendsAwayWhoHasNone) {
  const std::vector<std::string> ids = {"GPU-b", "none"};
  EXPECT_EQ(CheckDevices(ids, 0).error().code, ErrorCode::kAborted) << "its state is needed";
  EXPECT_EQ(CheckDevices(ids, 1).error().code, ErrorCode::kDeviceLost);
}

bool Never() { return false; }

TEST(AwaitDeviceWork, EndsWithTheWork) {
  FakeWork work;
  std::jthread device([&] { work.completed = true; });
  EXPECT_TRUE(AwaitDeviceWork(work, Never, kPatience, "sum").ok());
  EXPECT_EQ(work.synchronized, 1);
}

TEST(AwaitDeviceWork, EndsWithAnAbort) {
  FakeWork work;
  std::atomic<bool> aborted = false;
  std::jthread control([&] { aborted = true; });
  const Result<void> outcome = AwaitDeviceWork(
      work, [&] { return aborted.load(); }, kPatience, "sum");
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kAborted);
}

// An aborted kernel ends like any other, with garbage in its tensor and without an exception.
TEST(AwaitDeviceWork, DoesNotTakeAnAbortedSumForAGoodOne) {
  FakeWork work;
  std::atomic<bool> aborted = false;
  int asked = 0;
  const auto abort_while_waiting = [&] {
    if (++asked == 2) {
      aborted = true;
      work.completed = true;
    }
    return aborted.load();
  };
  EXPECT_FALSE(AwaitDeviceWork(work, abort_while_waiting, kPatience, "sum").ok());
  EXPECT_EQ(work.synchronized, 0);
}

TEST(AwaitDeviceWork, ReportsTheErrorOfTheWork) {
  FakeWork work;
  work.completed = true;
  work.problem = std::make_exception_ptr(
      std::runtime_error("NCCL error in: ProcessGroupNCCL.cpp:2356, remote process exited"));
  const Result<void> outcome = AwaitDeviceWork(work, Never, kPatience, "sum");
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kAborted);
  EXPECT_THAT(outcome.error().message, HasSubstr("remote process exited"));
}

TEST(AwaitDeviceWork, HasADeadline) {
  FakeWork work;
  const Result<void> outcome = AwaitDeviceWork(work, Never, milliseconds(30), "sum");
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().message, "sum: timed out after 30 ms");
}

TEST(CommunicatorWithADevice, AbortsItsGroupOnce) {
  IN_A_RANK({
    FakeBackend backend;
    {
      auto communicator = EnterWith(connector, 0, 1, {.backend = &backend});
      REQUIRE(communicator.ok());
      at::Tensor sum = at::ones({3}, at::kFloat);
      REQUIRE((*communicator)->SumInPlace(sum).ok());  // on the CPU, without the device
      (*communicator)->Abort();
      (*communicator)->Abort();
      (*communicator)->Close();
    }
    REQUIRE(backend.group->aborts == 1);
    return 0;
  });
}

TEST(CommunicatorWithADevice, AbortsItsGroupWhenItIsClosed) {
  IN_A_RANK({
    FakeBackend backend;
    auto communicator = EnterWith(connector, 0, 1, {.backend = &backend});
    REQUIRE(communicator.ok());
    (*communicator)->Close();
    REQUIRE(backend.group->aborts == 1);
    return 0;
  });
}

// As on the control thread.
TEST(CommunicatorWithADevice, IsDroppedWithoutWaitingForItsGroup) {
  IN_A_RANK({
    std::promise<void> wake;
    FakeBackend backend;
    backend.group->hangs = wake.get_future();
    { REQUIRE(EnterWith(connector, 0, 1, {.backend = &backend, .abort_limit = kPatience * 10}).ok()); }
    wake.set_value();
    return 0;
  });
}

TEST(CommunicatorWithADevice, GivesUpAnAbortThatHangs) {
  IN_A_RANK({
    std::promise<void> wake;
    FakeBackend backend;
    backend.group->hangs = wake.get_future();
    std::string problem;
    std::atomic<bool> has_returned = false;
    std::atomic<bool> returned_before_the_limit = false;
    {
      auto communicator = EnterWith(connector, 0, 1,
                                    {.backend = &backend,
                                     .give_up =
                                         [&](const std::string& reason) {
                                           problem = reason;
                                           returned_before_the_limit = has_returned.load();
                                         },
                                     .abort_limit = milliseconds(2'000)});
      REQUIRE(communicator.ok());
      (*communicator)->Abort();
      has_returned = true;
      (*communicator)->Close();
    }
    REQUIRE(returned_before_the_limit);
    REQUIRE(problem == "aborting the fake group: no end within 2000 ms");
    wake.set_value();
    return 0;
  });
}

// All ranks' connects hang at once: if each rank ended its process, the state would be lost.
TEST(CommunicatorWithADevice, LeavesAConnectThatHangsAndStays) {
  IN_A_RANK({
    std::promise<void> wake;
    FakeBackend backend;
    backend.connect_hangs = wake.get_future();
    bool is_given_up = false;
    const DeviceUse use{.backend = &backend, .give_up = [&](const std::string&) { is_given_up = true; }};
    const auto communicator =
        EnterWith(connector, 0, 1, use, {.connect = milliseconds(2000), .collective = kCollectiveLimit});
    REQUIRE(!communicator.ok());
    REQUIRE(communicator.error().code == ErrorCode::kAborted);
    REQUIRE(communicator.error().message == "connecting the fake group: no end within 2000 ms");
    REQUIRE(!is_given_up);
    wake.set_value();
    return 0;
  });
}

TEST(CommunicatorWithADevice, RefusesOneDeviceForTwoRanks) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    FakeBackend backend;
    const auto communicator = EnterWith(connector, rank, 2, {.backend = &backend});
    REQUIRE(!communicator.ok());
    REQUIRE(communicator.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(communicator.error().message ==
            "ranks 0 and 1 are on one device, GPU-a: each rank needs one of its own");
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(CommunicatorWithADevice, RefusesADeviceForSomeRanksOnly) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    FakeBackend backend;
    const auto communicator = EnterWith(connector, rank, 2, {.backend = rank == 0 ? &backend : nullptr});
    REQUIRE(!communicator.ok());
    REQUIRE(communicator.error().code == (rank == 0 ? ErrorCode::kAborted : ErrorCode::kDeviceLost));
    REQUIRE(communicator.error().message ==
            "rank 1 has no device, and rank 0 has GPU-a: all ranks need one, or none");
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::comm

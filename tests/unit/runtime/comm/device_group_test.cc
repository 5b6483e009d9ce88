#include "runtime/comm/device_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <future>
#include <thread>

#include "runtime/comm/device_module.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using testing::ExpectAllSucceed;
using testing::ForkedProcess;
using ::testing::HasSubstr;
using testing::kCollectiveLimit;
using testing::kPatience;
using testing::LineChannel;
using ::testing::Optional;
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

class FakeWork final : public c10d::Work {
 public:
  bool isCompleted() override { return completed; }
  std::exception_ptr exception() const override { return problem; }
  void synchronize() override { ++synchronized; }
  bool isSuccess() const override { throw std::logic_error("NCCL's work does not report it"); }
  bool wait(milliseconds) override {
    ADD_FAILURE() << "c10d's wait aborts the group where it times out, on this thread";
    return true;
  }

  std::atomic<bool> completed = false;
  std::exception_ptr problem;
  int synchronized = 0;
};

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

// Moves no data: there is no device.
struct IdleBackend final : c10d::Backend {
  using c10d::Backend::Backend;
};

struct FakeGroup final : DeviceGroup {
  c10::intrusive_ptr<c10d::Backend> backend() const override { return made; }
  std::string Trace() override {
    if (trace_hangs.valid()) trace_hangs.wait();
    return "read after " + std::to_string(aborts) + " aborts";
  }
  void Abort() override {
    ++aborts;
    if (hangs.valid()) hangs.wait();
  }

  c10::intrusive_ptr<c10d::Backend> made = c10::make_intrusive<IdleBackend>(0, 1);
  std::atomic<int> aborts = 0;
  std::shared_future<void> hangs;
  std::shared_future<void> trace_hangs;
};

struct FakeBackend final : DeviceBackend {
  std::string_view name() const override { return "fake"; }
  at::Device device() const override { return {at::kCUDA, 0}; }
  std::vector<at::Device> devices() const override { return {device()}; }
  std::string device_id() const override { return id; }
  std::shared_ptr<DeviceGroup> MakeGroup(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                         milliseconds) override {
    if (connect_hangs.valid()) connect_hangs.wait();
    return group;
  }
  void LeaveDefaultStream() override {}
  std::unique_ptr<DeviceGraph> NewGraph() override { return nullptr; }
  c10::intrusive_ptr<c10d::Work> Queued() override {
    auto work = c10::make_intrusive<FakeWork>();
    work->completed = true;
    return work;
  }

  std::string id = "GPU-a";
  std::shared_ptr<FakeGroup> group = std::make_shared<FakeGroup>();
  std::shared_future<void> connect_hangs;
};

Result<std::shared_ptr<Communicator>> EnterWith(RoundConnector& connector, int rank, int world,
                                                const DeviceUse& use,
                                                const Deadlines& deadlines = {
                                                    .collective = kCollectiveLimit}) {
  const Place place{.round = 1,
                    .rank = rank,
                    .world = world,
                    .address = "127.0.0.1",
                    .store_host = "127.0.0.1",
                    .store_port = connector.port};
  return Communicator::Connect(place, std::move(connector.listener), deadlines, use);
}

// In a separate process: Gloo's threads must not exist in a process that forks later.
#define IN_A_RANK(...)                                            \
  RoundConnector connector;                                       \
  auto ranks = StartRanks(1, [&](int, LineChannel&) __VA_ARGS__); \
  ExpectAllSucceed(ranks)

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

constexpr milliseconds kLongWait{2};

// The test is about the elapsed time: nothing else happens meanwhile, and a longer wait changes nothing.
void WaitLong(Communicator& communicator) {
  const Communicator::PeerWait wait(communicator);
  std::this_thread::sleep_for(kLongWait);
}

void BreakInALongWait(Communicator& communicator) {
  const Communicator::PeerWait wait(communicator);
  std::this_thread::sleep_for(kLongWait);
  communicator.Abort();
}

// The trace that was kept of a round that `end` ends.
template <typename End>
std::vector<std::string> TracesOfRound(RoundConnector& connector, FakeBackend& backend,
                                       milliseconds long_wait, const End& end) {
  std::vector<std::string> kept;
  const DeviceUse use{.backend = &backend,
                      .keep_trace =
                          [&](const BrokenTrace& trace) {
                            kept.push_back(std::to_string(trace.round) + "/" + std::to_string(trace.rank) +
                                           ": " + trace.dump);
                          },
                      .long_wait = long_wait};
  auto communicator = EnterWith(connector, 0, 1, use);
  if (!communicator.ok()) return {communicator.error().message};
  end(**communicator);
  (*communicator)->Close();
  return kept;
}

TEST(CommunicatorWithADevice, KeepsTheTraceOfARoundThatBreaksInALongWait) {
  IN_A_RANK({
    FakeBackend backend;
    const auto kept = TracesOfRound(connector, backend, kLongWait, BreakInALongWait);
    REQUIRE(kept == std::vector<std::string>{"1/0: read after 0 aborts"});
    return 0;
  });
}

TEST(CommunicatorWithADevice, KnowsWhatHadEndedBeforeTheRoundBroke) {
  IN_A_RANK({
    FakeBackend backend;
    std::chrono::nanoseconds ended_before{0};
    const DeviceUse use{.backend = &backend,
                        .keep_trace = [&](const BrokenTrace& trace) { ended_before = trace.ended_before; },
                        .long_wait = kLongWait};
    auto communicator = EnterWith(connector, 0, 1, use);
    REQUIRE(communicator.ok());
    const auto begin = std::chrono::system_clock::now().time_since_epoch();
    REQUIRE((*communicator)->AwaitQueued(backend, "what is queued").ok());
    const auto end = std::chrono::system_clock::now().time_since_epoch();
    BreakInALongWait(**communicator);
    (*communicator)->Close();
    REQUIRE(begin <= ended_before && ended_before <= end);
    return 0;
  });
}

// Each rank is alone in its subgroup. A long wait there is one of the round.
TEST(CommunicatorWithADevice, AbortsTheGroupOfItsSubgroupAfterTheTrace) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    FakeBackend backend;
    backend.id = "GPU-" + std::to_string(rank);
    std::vector<std::string> kept;
    std::chrono::nanoseconds ended_before{-1};
    const DeviceUse use{.backend = &backend,
                        .keep_trace =
                            [&](const BrokenTrace& trace) {
                              kept.push_back(trace.dump);
                              ended_before = trace.ended_before;
                            },
                        .long_wait = kLongWait};
    auto communicator = connector.Enter(1, rank, 2, use, kCollectiveLimit, "127.0.0.1", 1);
    REQUIRE(communicator.ok());
    REQUIRE((*communicator)->AwaitQueued(backend, "what is queued").ok());
    {
      const Communicator::PeerWait wait((*communicator)->subgroup());
      std::this_thread::sleep_for(kLongWait);
      (*communicator)->Abort();
    }
    (*communicator)->Close();
    REQUIRE(kept == std::vector<std::string>{"read after 0 aborts"});
    REQUIRE(ended_before.count() == 0);   // the subgroup's work may not have ended
    REQUIRE(backend.group->aborts == 2);  // the fake is the group of both
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// The step thread may have left its wait before it learns that the round is broken.
TEST(CommunicatorWithADevice, KeepsTheTraceOfARoundThatBreaksAfterALongWait) {
  IN_A_RANK({
    FakeBackend backend;
    const auto kept = TracesOfRound(connector, backend, kLongWait, [](Communicator& communicator) {
      WaitLong(communicator);
      communicator.Abort();
    });
    REQUIRE(kept.size() == 1);
    return 0;
  });
}

TEST(CommunicatorWithADevice, KeepsNoTraceOfAShortWait) {
  IN_A_RANK({
    FakeBackend backend;
    const auto kept = TracesOfRound(connector, backend, kPatience, [](Communicator& communicator) {
      const Communicator::PeerWait wait(communicator);
      communicator.Abort();
    });
    REQUIRE(kept.empty());
    return 0;
  });
}

TEST(CommunicatorWithADevice, KeepsNoTraceOfARoundThatEndsInGoodOrder) {
  IN_A_RANK({
    FakeBackend backend;
    const auto kept = TracesOfRound(connector, backend, kLongWait, WaitLong);
    REQUIRE(kept.empty());
    return 0;
  });
}

TEST(CommunicatorWithADevice, AbortsItsGroupThoughReadingTheTraceHangs) {
  IN_A_RANK({
    std::promise<void> wake;
    FakeBackend backend;
    backend.group->trace_hangs = wake.get_future();
    const auto kept = TracesOfRound(connector, backend, kLongWait, BreakInALongWait);
    REQUIRE(kept.empty());
    REQUIRE(backend.group->aborts == 1);
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

TEST(OpenDevice, SaysInOneLineWhatIsMissing) {
  const auto absent = OpenDevice("/nowhere/liblockstep_cuda.so", 0, 1);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("/nowhere/liblockstep_cuda.so"));

  const auto foreign = OpenDevice("libz.so.1", 0, 1);
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().message, "libz.so.1 has no lockstep_device_module");
}

// Without cuDNN and the like it cannot be loaded; with the driver it finds no GPU.
TEST(OpenDevice, SaysInOneLineWhyTheLibraryOfThisBuildIsOfNoUse) {
  ForkedProcess child([](LineChannel& parent) {
    const auto device = OpenDevice(LOCKSTEP_CUDA_MODULE, 0, 1);
    parent.Send(device.ok() ? "a device" : device.error().message);
    return device.ok() || device.error().code == ErrorCode::kNotFound ? 0 : 1;
  });
  EXPECT_THAT(child.channel().Receive(kPatience),
              Optional(AnyOf("a device", HasSubstr("cannot open shared object file"),
                             HasSubstr("CUDA finds no GPU"))));
  EXPECT_EQ(child.Wait(kPatience), 0);
}

}  // namespace
}  // namespace lockstep::comm

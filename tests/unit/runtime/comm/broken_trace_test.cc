// The trace that a communicator keeps of a round that broke.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/runtime/comm/fake_device.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using testing::ExpectAllSucceed;
using testing::kCollectiveLimit;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

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

}  // namespace
}  // namespace lockstep::comm

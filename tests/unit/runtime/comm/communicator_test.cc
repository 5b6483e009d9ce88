#include "runtime/comm/communicator.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "runtime/comm/connect_unless_stopped.h"
#include "tests/support/forked_ranks.h"

namespace lockstep::comm {
namespace {

using testing::ExpectAllSucceed;
using testing::ForkedProcess;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

TEST(Communicator, MovesValuesBetweenTheRanks) {
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    at::Tensor sum = at::full({1000}, rank + 1, at::kFloat);
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    REQUIRE(sum.eq(6).all().item<bool>());

    // Larger than one piece of a broadcast, together with a tensor of another type.
    at::Tensor large = rank == 1 ? at::arange(10'000'000, at::kFloat) : at::zeros({10'000'000}, at::kFloat);
    at::Tensor small = at::full({2, 3}, rank, at::kLong);
    REQUIRE((*communicator)->Broadcast({large, small}, 1).ok());
    REQUIRE(large[9'999'999].item<float>() == 9'999'999.0F);
    REQUIRE(small.eq(1).all().item<bool>());

    const std::vector<int64_t> mine = {rank, 100 + rank};
    const auto rows = (*communicator)->AllGather(mine);
    REQUIRE(rows.ok());
    REQUIRE((*rows == std::vector<std::vector<int64_t>>{{0, 100}, {1, 101}, {2, 102}}));
    REQUIRE((*communicator)->Barrier().ok());
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(Communicator, ConnectsSubgroupsOfNeighbours) {
  RoundConnector connector;
  auto ranks = StartRanks(4, [&](int rank, LineChannel&) {
    auto communicator = connector.EnterWithSubgroups(1, rank, 4, 2);
    REQUIRE(communicator.ok());
    Communicator& mine = (*communicator)->subgroup();
    REQUIRE(mine.world() == 2 && mine.rank() == rank % 2);
    at::Tensor sum = at::full({10}, rank, at::kFloat);
    const int64_t before = (*communicator)->bytes_given();
    REQUIRE(mine.SumInPlace(sum).ok());
    REQUIRE((*communicator)->bytes_given() == before + 40);
    REQUIRE(sum.eq(rank < 2 ? 1 : 5).all().item<bool>());
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    REQUIRE(sum.eq(12).all().item<bool>());
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(Communicator, AbortsItsSubgroup) {
  RoundConnector connector;
  auto ranks = StartRanks(4, [&](int rank, LineChannel& parent) {
    auto communicator = connector.EnterWithSubgroups(1, rank, 4, 2);
    REQUIRE(communicator.ok());
    if (rank == 1) {
      REQUIRE(parent.Receive(kPatience) == "end");
      return 0;
    }
    std::jthread control;
    if (rank == 0) {
      control = std::jthread([&] {
        while (!(*communicator)->waits_for_peers()) std::this_thread::yield();
        (*communicator)->Abort();
      });
    }
    at::Tensor sum = at::ones({10});
    // Rank 1 does not take part; ranks 2 and 3 learn of the abort in a sum of all ranks.
    const auto ended =
        rank == 0 ? (*communicator)->subgroup().SumInPlace(sum) : (*communicator)->SumInPlace(sum);
    REQUIRE(!ended.ok() && ended.error().code == ErrorCode::kAborted);
    REQUIRE((*communicator)->subgroup().aborted() == (rank == 0));
    return 0;
  });
  for (const std::size_t rank : {0, 2, 3}) EXPECT_EQ(ranks[rank].Wait(kPatience), 0) << "rank " << rank;
  ranks[1].channel().Send("end");
  EXPECT_EQ(ranks[1].Wait(kPatience), 0);
}

// Rank r sends r + 1 rows to each rank, except for rank 2, which sends none.
TEST(Communicator, MovesBlocksOfRows) {
  for (const int world : {1, 4}) {
    RoundConnector connector;
    auto ranks = StartRanks(world, [&](int rank, LineChannel&) {
      auto communicator = connector.Enter(1, rank, world);
      REQUIRE(communicator.ok());
      std::vector<int64_t> rows;
      std::vector<float> expected;
      for (int source = 0; source < world; ++source) {
        rows.push_back(source == 2 ? 0 : source + 1);
        for (int64_t row = 0; row < rows.back(); ++row)
          expected.push_back(static_cast<float>(100 * source + 10 * rank) + static_cast<float>(row));
      }
      const int64_t mine = rows[static_cast<std::size_t>(rank)];
      at::Tensor input = at::empty({world * mine, 5}, at::kFloat);
      for (int64_t i = 0; i < world * mine; ++i) input[i].fill_(100 * rank + 10 * (i / mine) + i % mine);
      at::Tensor output = at::empty({static_cast<int64_t>(expected.size()), 5}, at::kFloat);
      REQUIRE((*communicator)->AllToAll(output, rows, input).ok());
      REQUIRE(output.eq(at::tensor(expected).unsqueeze(1)).all().item<bool>());

      at::Tensor part = at::full({3}, rank, at::kFloat);
      at::Tensor all = at::empty({3 * world}, at::kFloat);
      REQUIRE((*communicator)->AllGatherInto(all, part).ok());
      REQUIRE(all.eq(at::arange(world, at::kFloat).repeat_interleave(3)).all().item<bool>());
      (*communicator)->Abort();
      REQUIRE((*communicator)->AllToAll(output, rows, input).error().code == ErrorCode::kAborted);
      REQUIRE((*communicator)->AllGatherInto(all, part).error().code == ErrorCode::kAborted);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

TEST(Communicator, WorksAlone) {
  RoundConnector connector;
  ForkedProcess rank([&](LineChannel&) {
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    at::Tensor sum = at::full({3}, 2, at::kFloat);
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    REQUIRE(sum.eq(2).all().item<bool>());
    (*communicator)->Abort();
    REQUIRE((*communicator)->SumInPlace(sum).error().code == ErrorCode::kAborted);
    return 0;
  });
  EXPECT_EQ(rank.Wait(kPatience), 0);
}

TEST(Communicator, AbortFromAnotherThreadWakesAWaitForAHungPeer) {
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel& parent) {
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    at::Tensor sum = at::ones({100'000}, at::kFloat);
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    parent.Send("connected");
    if (rank == 2) ::raise(SIGSTOP);
    Clock::time_point aborted;
    std::jthread control([&] {
      REQUIRE(parent.Receive(kPatience) == "abort");
      aborted = Clock::now();
      (*communicator)->Abort();
      return 0;
    });
    parent.Send("waiting");
    const Result<void> outcome = (*communicator)->SumInPlace(sum);
    const Clock::time_point woken = Clock::now();
    control.join();
    REQUIRE(!outcome.ok());
    REQUIRE(outcome.error().code == ErrorCode::kAborted);
    parent.Send(std::to_string(std::chrono::duration<double, std::milli>(woken - aborted).count()));
    const auto dropped = Clock::now();
    communicator->reset();
    parent.Send(std::to_string(MillisecondsSince(dropped)));
    return 0;
  });
  for (auto& rank : ranks) ASSERT_EQ(rank.channel().Receive(kPatience), "connected");
  for (int rank : {0, 1}) ASSERT_EQ(ranks[rank].channel().Receive(kPatience), "waiting");
  // No rank notices the stopped peer: both wait.
  EXPECT_EQ(ranks[0].channel().Receive(milliseconds(300)), std::nullopt);
  for (int rank : {0, 1}) ranks[rank].channel().Send("abort");
  for (int rank : {0, 1}) {
    const auto woken = ranks[rank].channel().Receive(kPatience);
    ASSERT_TRUE(woken.has_value());
    const auto dropped = ranks[rank].channel().Receive(kPatience);
    ASSERT_TRUE(dropped.has_value());
    std::printf("rank %d: woken %s ms after the abort, group dropped in %s ms\n", rank, woken->c_str(),
                dropped->c_str());
    EXPECT_LT(std::stod(*woken), 10'000);  // the time-out is a minute
    EXPECT_LT(std::stod(*dropped), 10'000);
    EXPECT_EQ(ranks[rank].Wait(kPatience), 0);
  }
}

// Large messages are in transit when rank 1 stops for good. Gloo does not report the failure to a thread that
// waits until the rest of a message is sent.
void ExpectToLeaveHalfWay(int world, const std::function<Result<void>(Communicator&, at::Tensor&)>& move) {
  constexpr int64_t kElements = int64_t{64} << 20;
  RoundConnector connector;
  auto ranks = StartRanks(world, [&](int rank, LineChannel& parent) {
    auto communicator = connector.Enter(1, rank, world);
    REQUIRE(communicator.ok());
    at::Tensor tensor = at::full({kElements}, rank + 1, at::kFloat);
    std::jthread control([&] {
      if (rank != 1) {
        if (parent.Receive(kPatience) == "abort") (*communicator)->Abort();
        return;
      }
      // Some data has arrived.
      auto* const data = tensor.data_ptr<float>();
      for (int64_t i = 0; std::atomic_ref(data[i]).load() == 2; i = (i + 1024) % kElements) {
      }
      parent.Send("half way");
      ::raise(SIGSTOP);
    });
    Result<void> done;
    while (done.ok()) done = move(**communicator, tensor);
    REQUIRE(done.error().code == ErrorCode::kAborted);
    control.join();
    communicator->reset();
    parent.Send("left");
    return 0;
  });
  ASSERT_EQ(ranks[1].channel().Receive(kPatience), "half way");
  for (int rank = 0; rank < world; ++rank) {
    if (rank != 1) ranks[rank].channel().Send("abort");
  }
  for (int rank = 0; rank < world; ++rank) {
    if (rank == 1) continue;
    // The time-out of a collective is a minute.
    EXPECT_EQ(ranks[rank].channel().Receive(kPatience / 3), "left") << rank;
    EXPECT_EQ(ranks[rank].Wait(kPatience / 3), 0) << rank;
  }
}

TEST(Communicator, AbortWakesASumThatIsHalfWay) {
  ExpectToLeaveHalfWay(
      3, [](Communicator& communicator, at::Tensor& tensor) { return communicator.SumInPlace(tensor); });
}

TEST(Communicator, AbortWakesABroadcastThatIsHalfWay) {
  ExpectToLeaveHalfWay(
      2, [](Communicator& communicator, at::Tensor& tensor) { return communicator.Broadcast({tensor}, 0); });
}

TEST(Communicator, AbortWakesASendThatIsHalfWay) {
  ExpectToLeaveHalfWay(2, [](Communicator& communicator, at::Tensor& tensor) {
    return communicator.rank() == 0 ? communicator.Send(tensor, 1) : communicator.Receive(tensor, 0);
  });
}

// In a ring of four, the rank opposite the dead one learns of the failure because its neighbours abort, or,
// if it waits for a send that Gloo forgets (open_work.h), from its supervisor.
TEST(Communicator, SurvivorsOfAKillFormTheNextRoundInTheSameProcess) {
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(4, [&](int rank, LineChannel& parent) {
    auto communicator = first.Enter(1, rank, 4);
    REQUIRE(communicator.ok());
    at::Tensor sum = at::ones({100'000}, at::kFloat);
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    parent.Send("connected");
    std::jthread supervisor([&] {
      if (parent.Receive(kPatience) == "broken") (*communicator)->Abort();
    });
    while ((*communicator)->SumInPlace(sum).ok()) sum.fill_(1);
    const auto broken = Clock::now();
    (*communicator)->Abort();
    supervisor.join();
    communicator->reset();
    communicator = second.Enter(2, rank > 1 ? rank - 1 : rank, 3);
    REQUIRE(communicator.ok());
    sum.fill_(1);
    REQUIRE((*communicator)->SumInPlace(sum).ok());
    const double recovered = MillisecondsSince(broken);
    REQUIRE(sum.eq(3).all().item<bool>());
    parent.Send(std::to_string(recovered));
    return 0;
  });
  for (auto& rank : ranks) ASSERT_EQ(rank.channel().Receive(kPatience), "connected");
  const auto killed = Clock::now();
  ranks[1].Signal(SIGKILL);
  EXPECT_EQ(ranks[1].Wait(kPatience), 128 + SIGKILL);
  for (int rank : {0, 2, 3}) ranks[rank].channel().Send("broken");
  for (int rank : {0, 2, 3}) {
    const auto recovered = ranks[rank].channel().Receive(kPatience);
    ASSERT_TRUE(recovered.has_value());
    std::printf("rank %d: next sum %s ms after its break, %.0f ms after the kill\n", rank, recovered->c_str(),
                MillisecondsSince(killed));
    EXPECT_EQ(ranks[rank].Wait(kPatience), 0);
  }
  EXPECT_LT(MillisecondsSince(killed), milliseconds(testing::kCollectiveLimit).count())
      << "the time-out ended it";
}

// Two rounds at once: the sum of one ends at its limit while the other round still waits.
TEST(Communicator, ARankThatIsLateWithinTheLimitBreaksNoRound) {
  RoundConnector hasty;
  RoundConnector patient;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    auto short_limit = hasty.Enter(1, rank, 2, {}, milliseconds(300));
    auto long_limit = patient.Enter(2, rank, 2, {}, kPatience);
    REQUIRE(short_limit.ok() && long_limit.ok());
    Result<void> ended;
    std::jthread other_round;
    if (rank == 0) {
      other_round = std::jthread([&] {
        at::Tensor sum = at::ones({3});
        ended = (*short_limit)->SumInPlace(sum);
        parent.Send("the short limit is over");
      });
    } else {
      REQUIRE(parent.Receive(kPatience) == "be late no longer");
    }
    at::Tensor sum = at::ones({3});
    auto pending = (*long_limit)->StartSum(sum);
    REQUIRE(pending.ok());
    // A separate limit can only extend that of the round.
    const std::vector<int64_t> mine = {rank};
    REQUIRE((*long_limit)->AllGather(mine, milliseconds(1)).ok());
    REQUIRE(pending->Wait().ok());
    REQUIRE(at::equal(sum, at::full({3}, 2.0F)));
    if (rank == 1) return 0;
    other_round.join();
    REQUIRE(!ended.ok() && ended.error().code == ErrorCode::kAborted);
    return 0;
  });
  ASSERT_EQ(ranks[0].channel().Receive(kPatience), "the short limit is over");
  ranks[1].channel().Send("be late no longer");
  ExpectAllSucceed(ranks);
}

// The process does not wait at its end either.
TEST(ConnectUnlessStopped, GivesUpAtOnceWhenTheRoundIsOver) {
  RoundConnector connector;
  ForkedProcess rank([&](LineChannel&) {
    std::stop_source stop;
    std::jthread control([&] { stop.request_stop(); });
    const auto start = Clock::now();
    const Place place{.round = 1,
                      .rank = 0,
                      .world = 2,
                      .address = "127.0.0.1",
                      .store_host = "127.0.0.1",
                      .store_port = connector.port};
    const auto outcome =
        ConnectUnlessStopped(place, std::move(connector.listener),
                             {.connect = kPatience, .collective = kPatience}, stop.get_token());
    REQUIRE(!outcome.ok());
    REQUIRE(outcome.error().code == ErrorCode::kCancelled);
    REQUIRE(MillisecondsSince(start) < 10'000);
    return 0;
  });
  EXPECT_EQ(rank.Wait(kPatience / 4), 0);
}

}  // namespace
}  // namespace lockstep::comm

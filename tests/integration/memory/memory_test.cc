// What recovery may cost: ranks with a state of some hundred megabytes, each in a memory cgroup whose limit is
// what this is to take.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/train/saves/restore.h"
#include "runtime/train/shards/shard_plan.h"
#include "tests/integration/memory/memory_budget.h"
#include "tests/support/filled_state.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/state_of.h"

namespace lockstep::train {
namespace {

using testing::Fill;
using testing::IsFilledWith;
using testing::kPatience;
using testing::LineChannel;
using testing::MemoryBudget;
using testing::MemoryGroup;
using testing::RoundConnector;
using testing::StartRanks;

constexpr int64_t kMiB = int64_t{1} << 20;
// Beside the state.
constexpr int64_t kOfALevelRank = 64 * kMiB;
constexpr double kOfAReceiver = 0.1;  // of it
const ModelInput kInput = {{1, 8, 8}, 10};

// Most of it is one layer: 12 bytes for each of its width² elements.
api::TrainingSpec Training(int64_t width, api::Strategy strategy = api::Strategy::kDdp) {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {width, width};
  spec.optimizer = {.name = api::OptimizerName::kAdam, .learning_rate = 0.01};
  spec.strategy = strategy;
  return spec;
}

std::unique_ptr<TrainingState> NewState(const api::TrainingSpec& spec) {
  return std::move(MakeTrainingState(spec, kInput)).value();
}

int64_t BytesOf(const std::vector<NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const NamedTensor& named : tensors) bytes += static_cast<int64_t>(named.tensor.nbytes());
  return bytes;
}

int64_t OfAReceiver(int64_t bytes) { return static_cast<int64_t>(kOfAReceiver * static_cast<double>(bytes)); }

// Loads the code that is measured: its pages are resident memory, too.
bool Rehearse(comm::Communicator& communicator) {
  const auto owned = NewState(Training(8));
  TrainingState& state = *owned;
  Fill(state, communicator.rank() == 0 ? 2 : 1, 0);
  return state.Sync(communicator, [](TrainingState&) { return Result<bool>(false); }).ok();
}

Result<bool> MustNotRestore(TrainingState&) { return Error{ErrorCode::kInternal, "not expected"}; }

class MemoryTest : public ::testing::Test {
 protected:
  void MakeGroups(int count) {
    for (int i = 0; i < count; ++i) groups_.push_back(MemoryGroup::Make(std::to_string(i)));
    if (!groups_.front().has_value())
      std::printf("no memory cgroup can be made here: nothing but the peak of resident memory is tested\n");
  }
  // Each rank says how much it had at its peak beside its state, and how much it may have.
  static void ExpectWithin(testing::ForkedProcess& rank, const std::string& who) {
    const auto peak = rank.channel().Receive(kPatience);
    ASSERT_TRUE(peak.has_value()) << who << " ended: the kernel kills a process at its cgroup's limit";
    const int64_t allowed = std::stoll(rank.channel().Receive(kPatience).value_or("0"));
    std::printf("%s: %lld of %lld MiB\n", who.c_str(), std::stoll(*peak) / kMiB,
                static_cast<long long>(allowed / kMiB));
    EXPECT_LE(std::stoll(*peak), allowed) << who;
    EXPECT_EQ(rank.Wait(kPatience), 0) << who;
  }
  static void Report(LineChannel& parent, int64_t peak, int64_t allowed) {
    parent.Send(std::to_string(peak));
    parent.Send(std::to_string(allowed));
  }

  std::vector<std::optional<MemoryGroup>> groups_;  // of the processes, which end first
};

TEST_F(MemoryTest, ARankThatIsKilledAndJoinsAgainReceivesInPlaceAndTheOthersNeedOneChunk) {
  MakeGroups(4);
  RoundConnector first;
  RoundConnector second;
  auto processes = StartRanks(4, [&](int process, LineChannel& parent) {
    at::set_num_threads(1);
    MemoryBudget budget(groups_[static_cast<std::size_t>(process)]);
    const auto owned = NewState(Training(8000));
    TrainingState& state = *owned;
    const bool is_new = process == 3;  // in the place of process 2
    if (!is_new) {
      Fill(state, 40, 7);
      auto communicator = first.Enter(1, process, 3);
      REQUIRE(communicator.ok());
      REQUIRE(state.Sync(**communicator, MustNotRestore).ok());
      parent.Send("trains");
      if (process == 2) (void)parent.Receive(kPatience);  // killed here
      REQUIRE(!(*communicator)->Barrier().ok());
      (*communicator)->Abort();
    }
    REQUIRE(parent.Receive(kPatience) == "join");
    auto communicator = second.Enter(2, is_new ? 2 : process, 3);
    REQUIRE(communicator.ok());
    const int64_t size = BytesOf(state.Tensors());
    const int64_t allowed = is_new ? OfAReceiver(size) : kOfALevelRank;
    REQUIRE(Rehearse(**communicator));
    budget.Allow(allowed);
    const auto source = state.Sync(**communicator, MustNotRestore);
    const int64_t peak = budget.TakePeak();
    REQUIRE(source.ok());
    REQUIRE(*source == (is_new ? StateSource::kPeer : StateSource::kKept));
    REQUIRE(state.step == 40 && !state.is_torn && IsFilledWith(state, 7));
    Report(parent, peak, allowed);
    return 0;
  });
  for (const std::size_t process : {0, 1, 2})
    ASSERT_EQ(processes[process].channel().Receive(kPatience), "trains");
  processes[2].Signal(SIGKILL);
  EXPECT_EQ(processes[2].Wait(kPatience), 128 + SIGKILL);
  for (const std::size_t process : {0, 1, 3}) processes[process].channel().Send("join");
  ExpectWithin(processes[0], "the source");
  ExpectWithin(processes[1], "a rank that is level");
  ExpectWithin(processes[3], "the newcomer");
}

class MemoryOfALaggard : public MemoryTest {
 protected:
  // Rank 2 is a step behind the others, which are on those hosts.
  void Sync(int host_of_0, int host_of_1, const std::function<int64_t(int64_t size)>& allowed_to_a_laggard) {
    MakeGroups(3);
    RoundConnector connector;
    auto ranks = StartRanks(3, [&](int rank, LineChannel& parent) {
      at::set_num_threads(1);
      MemoryBudget budget(groups_[static_cast<std::size_t>(rank)]);
      const auto owned = NewState(Training(8000));
      TrainingState& state = *owned;
      const bool is_behind = rank == 2;
      Fill(state, is_behind ? 40 : 41, is_behind ? 7 : 8);
      auto communicator = connector.EnterOnHost(
          std::array{host_of_0, host_of_1, 3}.at(static_cast<std::size_t>(rank)), 1, rank, 3);
      REQUIRE(communicator.ok());
      const int64_t allowed = is_behind ? allowed_to_a_laggard(BytesOf(state.Tensors())) : kOfALevelRank;
      REQUIRE(Rehearse(**communicator));
      budget.Allow(allowed);
      const auto source = state.Sync(**communicator, MustNotRestore);
      const int64_t peak = budget.TakePeak();
      REQUIRE(source.ok());
      REQUIRE(*source == (is_behind ? StateSource::kPeer : StateSource::kKept));
      REQUIRE(state.step == 41 && !state.is_torn && IsFilledWith(state, 8));
      Report(parent, peak, allowed);
      return 0;
    });
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      ExpectWithin(ranks[rank], rank == 2 ? "the laggard" : "a rank that is ahead");
  }
};

TEST_F(MemoryOfALaggard, ReceivesInPlaceWhereTwoHostsAreAhead) { Sync(1, 2, OfAReceiver); }

// Its own state is the newest one if that host is lost, so it is kept until all of theirs has arrived.
TEST_F(MemoryOfALaggard, KeepsItsStateInHostMemoryWhereOneHostIsAhead) {
  Sync(1, 1, [](int64_t size) { return size + OfAReceiver(size); });
}

class Folder {
 public:
  Folder() { LOCKSTEP_CHECK(::mkdtemp(path_.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = ::testing::TempDir() + "lockstep-memory-XXXXXX";
};

std::unique_ptr<checkpoint::Checkpointer> Open(const api::CheckpointSpec& spec) {
  return std::move(checkpoint::Checkpointer::Open(spec, {"default", "mnist", "uid-1"}, Json::object()))
      .value();
}

// A checkpoint of ddp, which every strategy reads.
void StoreOne(const api::CheckpointSpec& spec, int64_t width, int64_t step, double value) {
  testing::ForkedProcess writer([&](LineChannel&) {
    at::set_num_threads(1);
    const auto owned = NewState(Training(width));
    TrainingState& state = *owned;
    Fill(state, step, value);
    const auto checkpointer = Open(spec);
    checkpointer->Save({step, 1, 0, 1, state.Tensors()}, nullptr);
    REQUIRE(checkpointer->Wait(kPatience).ok());
    return 0;
  });
  ASSERT_EQ(writer.Wait(kPatience), 0);
}

class MemoryOfAShardedOptimizer : public MemoryTest {
 protected:
  static api::TrainingSpec Zero1(int64_t width, int copies) {
    api::TrainingSpec spec = Training(width, api::Strategy::kZero1);
    spec.zero1.copies = copies;
    return spec;
  }

  static void FillReplicated(TrainingState& state, int64_t step, double value) {
    const at::NoGradGuard no_grad;
    state.step = step;
    for (const auto& named : state.Replicated()) named.tensor.fill_(value);
  }
  static bool ReplicatedIs(const TrainingState& state, double value) {
    const auto replicated = state.Replicated();
    return std::all_of(replicated.begin(), replicated.end(), [value](const NamedTensor& named) {
      return named.tensor.eq(value).all().item<bool>();
    });
  }

  static std::vector<Range> PartsOf(TrainingState& state, int rank, int world, int copies) {
    std::vector<Range> parts;
    for (const int part : PartsHeldBy(rank, world, world, {copies, 1}))
      parts.push_back(testing::ShardsOf(state).PartOf(part, world));
    return parts;
  }
  static std::size_t SlotsOf(TrainingState& state) {
    return testing::ShardsOf(state).described().size() / testing::ShardsOf(state).parameters();
  }
  static int64_t BytesOfParts(TrainingState& state, const std::vector<Range>& parts) {
    return SizeOf(parts) * static_cast<int64_t>(SlotsOf(state) * sizeof(float));
  }
  static void Hold(TrainingState& state, int64_t step, const std::vector<Range>& parts) {
    for (const Range& part : parts) {
      std::vector<at::Tensor> slots;
      for (std::size_t slot = 0; slot < SlotsOf(state); ++slot) slots.push_back(at::ones({part.size()}));
      testing::ShardsOf(state).Load(step, part, std::move(slots));
    }
  }

  // Rank 0 sends a part to each of the others.
  static bool RehearseParts(comm::Communicator& communicator) {
    const auto owned = std::move(MakeTrainingState(Zero1(8, 1), kInput)).value();
    TrainingState& state = *owned;
    FillReplicated(state, 2, 1);
    if (communicator.rank() == 0) Hold(state, 2, {testing::ShardsOf(state).PartOf(0, 1)});
    if (communicator.rank() > 0) state.step = -1;
    return state.Sync(communicator, [](TrainingState&) { return Result<bool>(false); }).ok();
  }

  // Reports what it takes.
  static Result<StateSource> SyncWithin(MemoryBudget& budget, int64_t allowed,
                                        comm::Communicator& communicator, TrainingState& state,
                                        LineChannel& parent) {
    if (!RehearseParts(communicator)) return Error{ErrorCode::kInternal, "the rehearsal failed"};
    budget.Allow(allowed);
    auto source = state.Sync(communicator, MustNotRestore);
    Report(parent, budget.TakePeak(), allowed);
    return source;
  }
};

TEST_F(MemoryOfAShardedOptimizer, ANewRankReceivesItsPartsAndTheOthersNeedOneChunk) {
  MakeGroups(3);
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    MemoryBudget budget(groups_[static_cast<std::size_t>(rank)]);
    const auto owned = NewState(Zero1(8000, 2));
    TrainingState& state = *owned;
    const bool is_new = rank == 2;
    const std::vector<Range> parts = PartsOf(state, rank, 3, 2);
    if (!is_new) {
      FillReplicated(state, 40, 7);
      Hold(state, 40, parts);
    }
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    const int64_t received = BytesOfParts(state, parts);
    const int64_t size = BytesOf(state.Replicated()) + received;
    const int64_t allowed = is_new ? received + OfAReceiver(size) : kOfALevelRank;
    const auto source = SyncWithin(budget, allowed, **communicator, state, parent);
    REQUIRE(source.ok());
    REQUIRE(*source == (is_new ? StateSource::kPeer : StateSource::kKept));
    REQUIRE(state.step == 40 && ReplicatedIs(state, 7) && testing::ShardsOf(state).held_bytes() == received);
    return 0;
  });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    ExpectWithin(ranks[rank], rank == 2 ? "the newcomer" : "a rank that keeps its parts");
}

// A third rank joins two that hold the parts of these steps. Ranks whose parts change may take this much more than they hold, but
// for the exchanged chunks.
class MemoryOfPartsThatChange : public MemoryOfAShardedOptimizer {
 protected:
  void Join(const std::vector<int64_t>& held_steps, const std::function<int64_t(int64_t part)>& allowed_for) {
    MakeGroups(3);
    RoundConnector connector;
    auto ranks = StartRanks(3, [&](int rank, LineChannel& parent) {
      at::set_num_threads(1);
      MemoryBudget budget(groups_[static_cast<std::size_t>(rank)]);
      const auto owned = NewState(Zero1(8000, 1));
      TrainingState& state = *owned;
      const bool is_new = rank == 2;
      const std::vector<Range> before = PartsOf(state, is_new ? 0 : rank, 2, 1);
      if (!is_new) {
        FillReplicated(state, held_steps.back(), 7);
        for (const int64_t step : held_steps) Hold(state, step, before);
      }
      auto communicator = connector.Enter(1, rank, 3);
      REQUIRE(communicator.ok());
      const int64_t received = BytesOfParts(state, PartsOf(state, rank, 3, 1));
      const int64_t size = BytesOf(state.Replicated()) + received;
      const int64_t allowed =
          is_new ? received + OfAReceiver(size) : allowed_for(BytesOfParts(state, before));
      const auto source = SyncWithin(budget, allowed, **communicator, state, parent);
      REQUIRE(source.ok());
      REQUIRE(state.step == held_steps.back() && testing::ShardsOf(state).held_bytes() == received);
      return 0;
    });
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      ExpectWithin(ranks[rank], rank == 2 ? "the newcomer" : "a rank whose parts change");
  }
};

// A step keeps a copy of the rank's part until all ranks have made it.
TEST_F(MemoryOfPartsThatChange, TakeNoMoreThanTheCopyThatAStepMakes) {
  Join({41}, [](int64_t part) { return part; });
}

// Of the interrupted step the rank still has that copy.
TEST_F(MemoryOfPartsThatChange, ReplaceTheOlderVersionOfAnInterruptedStep) {
  Join({40, 41}, [](int64_t) { return kOfALevelRank; });
}

// It has updated its own parts, but its round broke before it had the parameters of the others.
TEST_F(MemoryOfAShardedOptimizer, ALaggardReceivesTheParametersInPlace) {
  MakeGroups(3);
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    MemoryBudget budget(groups_[static_cast<std::size_t>(rank)]);
    const auto owned = NewState(Zero1(8000, 2));
    TrainingState& state = *owned;
    const bool is_behind = rank == 2;
    const std::vector<Range> parts = PartsOf(state, rank, 3, 2);
    FillReplicated(state, is_behind ? 40 : 41, is_behind ? 7 : 8);
    Hold(state, 41, parts);
    if (is_behind) Hold(state, 40, parts);
    auto communicator = connector.EnterOnHost(rank + 1, 1, rank, 3);
    REQUIRE(communicator.ok());
    const int64_t held = BytesOfParts(state, parts);
    const int64_t allowed = is_behind ? OfAReceiver(BytesOf(state.Replicated()) + held) : kOfALevelRank;
    const auto source = SyncWithin(budget, allowed, **communicator, state, parent);
    REQUIRE(source.ok());
    REQUIRE(*source == (is_behind ? StateSource::kPeer : StateSource::kKept));
    REQUIRE(state.step == 41 && ReplicatedIs(state, 8) && testing::ShardsOf(state).held_bytes() == held);
    return 0;
  });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    ExpectWithin(ranks[rank], rank == 2 ? "the laggard" : "a rank that is ahead");
}

// Large, as reading takes 64 MiB whatever the state is (part_reader.cc).
TEST_F(MemoryTest, RanksRestoreIntoTheirOwnTensors) {
  const int64_t width = 12000;
  MakeGroups(2);
  const Folder folder;
  api::CheckpointSpec spec;
  spec.uri = "file://" + folder.path();
  StoreOne(spec, width, 120, 3);
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    MemoryBudget budget(groups_[static_cast<std::size_t>(rank)]);
    const auto owned = NewState(Training(width));
    TrainingState& state = *owned;
    const auto checkpointer = Open(spec);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const int64_t allowed = OfAReceiver(BytesOf(state.Tensors()));
    REQUIRE(Rehearse(**communicator));
    budget.Allow(allowed);
    const auto source = state.Sync(**communicator, [&](TrainingState& restored) {
      return RestoreTogether(**communicator, *checkpointer, restored);
    });
    const int64_t peak = budget.TakePeak();
    REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
    REQUIRE(state.step == 120 && !state.is_torn && IsFilledWith(state, 3));
    Report(parent, peak, allowed);
    return 0;
  });
  for (auto& rank : ranks) ExpectWithin(rank, "a rank that restores");
}

TEST_F(MemoryOfAShardedOptimizer, RanksKeepThePartsThatTheyReadAndReceiveCopiesOfTheOthers) {
  const int64_t width = 12000;
  MakeGroups(2);
  const Folder folder;
  api::CheckpointSpec spec;
  spec.uri = "file://" + folder.path();
  StoreOne(spec, width, 120, 3);
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    MemoryBudget budget(groups_[static_cast<std::size_t>(rank)]);
    const auto owned = NewState(Zero1(width, 2));
    TrainingState& state = *owned;
    const auto checkpointer = Open(spec);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    const int64_t parts = BytesOfParts(state, PartsOf(state, rank, 2, 2));
    const int64_t allowed = parts + OfAReceiver(BytesOf(state.Replicated()) + parts);
    REQUIRE(RehearseParts(**communicator));
    budget.Allow(allowed);
    const auto source = state.Sync(**communicator, [&](TrainingState& restored) {
      return RestoreTogether(**communicator, *checkpointer, restored);
    });
    const int64_t peak = budget.TakePeak();
    REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
    REQUIRE(state.step == 120 && ReplicatedIs(state, 3) && testing::ShardsOf(state).held_bytes() == parts);
    Report(parent, peak, allowed);
    return 0;
  });
  for (auto& rank : ranks) ExpectWithin(rank, "a rank that restores its parts");
}

}  // namespace
}  // namespace lockstep::train

#include "runtime/train/loop/elastic_loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "runtime/checkpoint/file_store.h"
#include "runtime/checkpoint/manifest.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/state_of.h"

namespace lockstep::train {
namespace {

using checkpoint::Checkpointer;
using protocol::ExitCode;
using testing::ForkedProcess;
using testing::kPatience;
using testing::LineChannel;

api::TrainingSpec Training(int64_t steps) {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {8};
  spec.data.synthetic = {.samples = 20, .test_samples = 10, .shape = {1, 8, 8}, .classes = 3};
  spec.global_batch_size = 10;
  spec.steps = steps;
  return spec;
}

std::unique_ptr<TrainingState> NewState(const api::TrainingSpec& spec) {
  return std::move(MakeTrainingState(spec, {spec.data.synthetic.shape, 3})).value();
}

// Runs a rank's loop; the test acts as its supervisor.
LoopOutcome RunLoop(const api::TrainingSpec& spec, TrainingState& state, Checkpointer* checkpointer,
                    const LineChannel& supervisor, const Clock& clock = SystemClock()) {
  RoundControl control(clock);
  protocol::ControlLink link{Fd(::dup(supervisor.fd()))};
  link.Start({.on_message = [&](const protocol::ToRank& message) { control.OnMessage(message); },
              .on_end = [] { ::_exit(2); }});
  const data::Datasets datasets = std::move(data::OpenDatasets(spec)).value();
  const data::TrainingSamples samples = std::move(data::TrainingSamples::Make(spec, *datasets.train)).value();
  return RunElasticLoop({.training = spec,
                         .checkpoint = {},
                         .listen_address = "127.0.0.1",
                         .ledger_folder = "",
                         .process_name = "test",
                         .samples = samples,
                         .test = *datasets.test,
                         .state = state,
                         .device = {},
                         .checkpointer = checkpointer,
                         .store_patience = Seconds(1),
                         .collective_limit = kPatience,
                         .link = link,
                         .control = control,
                         .clock = clock});
}

// The next message of that type.
template <typename Message>
std::optional<Message> Await(ForkedProcess& rank) {
  while (const auto line = rank.channel().Receive(kPatience)) {
    const auto message = protocol::DecodeFromRank(*line);
    if (!message.ok()) return std::nullopt;
    if (const auto* wanted = std::get_if<Message>(&*message)) return *wanted;
  }
  return std::nullopt;
}

void SendTo(ForkedProcess& rank, const protocol::ToRank& message) {
  rank.channel().Send(protocol::Encode(message));
}

void Assign(ForkedProcess& rank, int64_t round, const protocol::Ready& ready) {
  SendTo(
      rank,
      protocol::RankAssignment{
          .round = round, .address = "127.0.0.1", .store_host = "127.0.0.1", .store_port = ready.store_port});
}

// Forms a round of ranks that are Ready; `first` is the message of rank 0.
void AssignAll(std::span<ForkedProcess> ranks, int64_t round, const protocol::Ready& first,
               int ranks_in_pod = 1) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    SendTo(ranks[i], protocol::RankAssignment{.round = round,
                                              .rank = static_cast<int>(i),
                                              .world = static_cast<int>(ranks.size()),
                                              .local_rank = static_cast<int>(i) % ranks_in_pod,
                                              .address = "127.0.0.1",
                                              .store_host = "127.0.0.1",
                                              .store_port = first.store_port});
  }
}

class ElasticLoopTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Checkpointer> Open(std::unique_ptr<checkpoint::ObjectStore> store) {
    return std::make_unique<Checkpointer>(spec_, protocol::JobIdentity{"default", "mnist", "uid-1"},
                                          Json::object(), std::move(store));
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-loop-XXXXXX";
  api::CheckpointSpec spec_;
};

// Reads of tensors return the error of part_reader.cc for lack of memory.
class ShortOfMemory final : public checkpoint::ObjectStore {
 public:
  explicit ShortOfMemory(std::unique_ptr<checkpoint::ObjectStore> store) : store_(std::move(store)) {}
  Result<void> Put(const std::string& name, std::string_view content) override {
    return store_->Put(name, content);
  }
  Result<std::string> Get(const std::string& name) override { return store_->Get(name); }
  Result<void> Read(const std::string&, int64_t, std::span<char>) override {
    return Error{ErrorCode::kInternal, "no memory for 8388608 bytes"};
  }
  Result<std::vector<checkpoint::ObjectInfo>> List() override { return store_->List(); }
  Result<void> Delete(const std::string& name) override { return store_->Delete(name); }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return store_->UriOf(name); }

 private:
  const std::unique_ptr<checkpoint::ObjectStore> store_;
};

TEST_F(ElasticLoopTest, PutsNoStepToMemoryThatIsShortWhileItRestores) {
  ForkedProcess rank([&](LineChannel& supervisor) {
    const api::TrainingSpec spec = Training(4);
    const auto owned = NewState(spec);
    TrainingState& state = *owned;
    const auto writer = Open(std::move(checkpoint::OpenFileStore(folder_)).value());
    writer->Save({2, 1, 0, 1, state.Tensors()}, nullptr);
    REQUIRE(writer->Wait(kPatience).ok());
    const auto reader =
        Open(std::make_unique<ShortOfMemory>(std::move(checkpoint::OpenFileStore(folder_)).value()));
    return static_cast<int>(RunLoop(spec, state, reader.get(), supervisor).code);
  });
  for (const int64_t round : {2, 3}) {
    const auto ready = Await<protocol::Ready>(rank);
    ASSERT_TRUE(ready.has_value());
    EXPECT_EQ(ready->step, -1);
    Assign(rank, round, *ready);
    const auto broken = Await<protocol::Broken>(rank);
    ASSERT_TRUE(broken.has_value());
    EXPECT_NE(broken->reason.find("no memory for 8388608 bytes"), std::string::npos) << broken->reason;
    EXPECT_EQ(broken->failed_step, -1)
        << "the supervisor takes the same words at the same step for the user's";
  }
  rank.channel().Send(protocol::Encode(protocol::ToRank(protocol::Stop{})));
  EXPECT_EQ(rank.Wait(kPatience), static_cast<int>(ExitCode::kPreempted));
}

// A new rank whose source died half-way, with nothing stored.
TEST_F(ElasticLoopTest, BeginsWithAStateAsItWasMadeWhereItsOwnIsTorn) {
  ForkedProcess rank([&](LineChannel& supervisor) {
    const api::TrainingSpec spec = Training(0);  // there is nothing to do but to begin
    const auto owned = NewState(spec);
    TrainingState& state = *owned;
    state.Tear();
    const at::NoGradGuard no_grad;
    state.parameters.back().tensor.fill_(8);
    const LoopOutcome outcome = RunLoop(spec, state, nullptr, supervisor);
    REQUIRE(outcome.code == ExitCode::kCompleted);
    REQUIRE(state.step == 0 && !state.is_torn);
    REQUIRE(testing::ReplicatedOf(state).Digest() == testing::ReplicatedOf(*NewState(spec)).Digest());
    return 0;
  });
  const auto ready = Await<protocol::Ready>(rank);
  ASSERT_TRUE(ready.has_value());
  Assign(rank, 2, *ready);
  EXPECT_TRUE(Await<protocol::Finished>(rank).has_value());
  EXPECT_EQ(rank.Wait(kPatience), 0);
}

// Two seconds pass between any two looks at it.
class HastyClock final : public Clock {
 public:
  [[nodiscard]] WallTime Now() const override { return system_.Now(); }
  [[nodiscard]] SteadyTime Steady() const override {
    return system_.Steady() + std::chrono::seconds(2) * ++looks_;
  }

 private:
  const SystemClock system_;
  mutable std::atomic<int> looks_ = 0;
};

// Else the supervisor takes a rank whose evaluation is slow for one that hangs.
TEST_F(ElasticLoopTest, SaysThatAnEvaluationGoesOn) {
  ForkedProcess rank([](LineChannel& supervisor) {
    api::TrainingSpec spec = Training(2);
    spec.evaluation = api::EvaluationSpec{.every_epochs = 1, .batch_size = 1};
    const auto owned = NewState(spec);
    return static_cast<int>(RunLoop(spec, *owned, nullptr, supervisor, HastyClock()).code);
  });
  const auto ready = Await<protocol::Ready>(rank);
  ASSERT_TRUE(ready.has_value());
  Assign(rank, 1, *ready);
  int signs = 0;
  for (auto phase = Await<protocol::PhaseChanged>(rank); phase.has_value();
       phase = Await<protocol::PhaseChanged>(rank)) {
    signs += phase->phase == protocol::RankPhase::kEvaluate ? 1 : 0;
  }
  EXPECT_EQ(signs, 1 + 10) << "at the beginning, and before each of ten batches";
  EXPECT_EQ(rank.Wait(kPatience), 0);
}

class DividedStateTest : public ElasticLoopTest, public ::testing::WithParamInterface<api::Strategy> {
 protected:
  // Each has made a step.
  void TrainInRoundOne(int world, int ranks_in_pod = 1) {
    ranks_ = testing::StartRanks(world, [this](int, LineChannel& supervisor) {
      at::set_num_threads(1);  // the test's process may have had more, which a child does not have
      api::TrainingSpec spec = Training(1'000'000);
      spec.strategy = GetParam();
      spec.model.mlp.hidden_sizes = {8, 8, 8};
      spec.optimizer.name = api::OptimizerName::kAdamw;
      const auto owned = NewState(spec);
      TrainingState& state = *owned;
      const auto checkpointer = Open(std::move(checkpoint::OpenFileStore(folder_)).value());
      return static_cast<int>(RunLoop(spec, state, checkpointer.get(), supervisor).code);
    });
    std::vector<protocol::Ready> ready;
    for (ForkedProcess& rank : ranks_) {
      ready.push_back(Await<protocol::Ready>(rank).value());
      EXPECT_FALSE(ready.back().hands_over) << "it has no state yet";
    }
    AssignAll(ranks_, 1, ready.front(), ranks_in_pod);
    for (ForkedProcess& rank : ranks_) {
      while (Await<protocol::Progress>(rank).value().step == 0) continue;
    }
  }

  std::vector<ForkedProcess> ranks_;
};

INSTANTIATE_TEST_SUITE_P(Strategies, DividedStateTest,
                         ::testing::Values(api::Strategy::kZero1, api::Strategy::kFsdp,
                                           api::Strategy::kPipeline));

constexpr protocol::Stop kStop{.grace_seconds = 2.0 * static_cast<double>(kPatience.count())};

// The round ends in good order before the rank reads that it should stop.
TEST_P(DividedStateTest, IsHandedOverInTheNextRoundIfARankIsAskedToStopBetweenTwo) {
  TrainInRoundOne(2);
  std::vector<protocol::Ready> ready;
  for (ForkedProcess& rank : ranks_) SendTo(rank, protocol::RoundOver{1, protocol::LeaveMode::kYield});
  for (ForkedProcess& rank : ranks_) {
    ready.push_back(Await<protocol::Ready>(rank).value());
    EXPECT_TRUE(ready.back().hands_over);
  }
  SendTo(ranks_.back(), kStop);
  AssignAll(ranks_, 2, ready.front());
  EXPECT_EQ(ranks_.back().Wait(kPatience), static_cast<int>(ExitCode::kPreempted));
  const auto alone = Await<protocol::Ready>(ranks_.front());
  ASSERT_TRUE(alone.has_value());
  EXPECT_GT(alone->step, ready.front().step);
  EXPECT_FALSE(alone->hands_over) << "it holds everything now";
  Assign(ranks_.front(), 3, *alone);
  const auto synced = Await<protocol::Synced>(ranks_.front());
  ASSERT_TRUE(synced.has_value());
  EXPECT_EQ(synced->step, alone->step);
  EXPECT_EQ(synced->source, "kept");
  SendTo(ranks_.front(), protocol::Stop{});
  EXPECT_EQ(ranks_.front().Wait(kPatience), static_cast<int>(ExitCode::kPreempted));
}

// The request to the third rank is still on its way.
TEST_P(DividedStateTest, IsHandedOverByAllRanksOfAPodOnceOneIsAskedToStop) {
  TrainInRoundOne(4, /*ranks_in_pod=*/2);
  SendTo(ranks_[3], kStop);
  for (const std::size_t rank : {2, 3}) {
    ASSERT_FALSE(Await<protocol::Ready>(ranks_[rank]).has_value()) << "rank " << rank << " stays with a part";
    EXPECT_EQ(ranks_[rank].Wait(kPatience), static_cast<int>(ExitCode::kPreempted));
  }
  const auto first = Await<protocol::Ready>(ranks_[0]);
  ASSERT_TRUE(first.has_value() && Await<protocol::Ready>(ranks_[1]).has_value());
  const std::span<ForkedProcess> pod(ranks_.data(), 2);
  AssignAll(pod, 2, *first, /*ranks_in_pod=*/2);
  for (ForkedProcess& rank : pod) {
    const auto synced = Await<protocol::Synced>(rank);
    ASSERT_TRUE(synced.has_value());
    EXPECT_EQ(synced->step, first->step);
    EXPECT_NE(synced->source, "checkpoint");
  }
  // Now all ranks of the round leave, so they store the state.
  SendTo(ranks_[0], kStop);
  int64_t last = -1;
  while (const auto progress = Await<protocol::Progress>(ranks_[0])) last = progress->step;
  EXPECT_GT(last, first->step);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/" + checkpoint::FolderOfStep(last) + "/manifest.json"));
  for (ForkedProcess& rank : pod) EXPECT_EQ(rank.Wait(kPatience), static_cast<int>(ExitCode::kPreempted));
}

}  // namespace
}  // namespace lockstep::train

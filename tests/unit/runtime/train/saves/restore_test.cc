#include "runtime/train/saves/restore.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "runtime/checkpoint/file_store.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/state_of.h"
#include "tests/unit/runtime/checkpoint/memory_exchange.h"

namespace lockstep::train {
namespace {

using checkpoint::Checkpointer;
using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

constexpr std::chrono::seconds kLong(60);
const ModelInput kInput = {{1, 8, 8}, 10};

// With two moments per parameter about 30 MB, most of them in three layers.
api::TrainingSpec Training(api::Strategy strategy, int64_t hidden = 900) {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {hidden, hidden, hidden, hidden};
  spec.optimizer = {.name = api::OptimizerName::kAdam, .learning_rate = 0.01};
  spec.pipeline.stages = 2;
  spec.strategy = strategy;
  return spec;
}

// Different numbers in every element of every tensor.
std::unique_ptr<TrainingState> Marked(double step,
                                      const api::TrainingSpec& spec = Training(api::Strategy::kDdp)) {
  auto state = std::move(MakeTrainingState(spec, kInput)).value();
  const at::NoGradGuard no_grad;
  double first = step;
  for (const NamedTensor& named : state->Tensors()) {
    named.tensor.copy_(at::arange(named.tensor.numel()).view(named.tensor.sizes()) + first);
    first += 0.5;
  }
  return state;
}

// Counts what is read, and fails when the test says so.
class WatchedStore final : public checkpoint::ObjectStore {
 public:
  explicit WatchedStore(const std::string& folder)
      : store_(std::move(checkpoint::OpenFileStore(folder)).value()) {}
  Result<void> Put(const std::string& name, std::string_view content) override {
    return store_->Put(name, content);
  }
  Result<std::string> Get(const std::string& name) override { return store_->Get(name); }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    if (is_away) return Error{ErrorCode::kUnavailable, "the store is away"};
    bytes_read += static_cast<int64_t>(target.size());
    return store_->Read(name, offset, target);
  }
  Result<std::vector<checkpoint::ObjectInfo>> List() override {
    if (is_away) return Error{ErrorCode::kUnavailable, "the store is away"};
    return store_->List();
  }
  Result<void> Delete(const std::string& name) override { return store_->Delete(name); }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return store_->UriOf(name); }

  std::atomic<int64_t> bytes_read = 0;
  std::atomic<bool> is_away = false;

 private:
  const std::unique_ptr<checkpoint::ObjectStore> store_;
};

class RestoreTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Place {
    WatchedStore* store = nullptr;
    std::unique_ptr<Checkpointer> checkpointer;
  };
  Place Open(const std::string& job_uid = "uid-1") {
    auto store = std::make_unique<WatchedStore>(folder_);
    WatchedStore* const watched = store.get();
    return {watched, std::make_unique<Checkpointer>(spec_, protocol::JobIdentity{"default", "mnist", job_uid},
                                                    Json::object(), std::move(store))};
  }
  // Saves as three ranks do.
  void Save(int64_t step, const api::TrainingSpec& spec = Training(api::Strategy::kDdp)) {
    const auto state = Marked(static_cast<double>(step), spec);
    const auto exchange = std::make_shared<checkpoint::MemoryExchange>();
    std::vector<Place> writers;
    for (int rank = 0; rank < 3; ++rank) {
      writers.push_back(Open());
      writers.back().checkpointer->Save({step, 1, rank, 3, state->Tensors()}, exchange);
    }
    for (const Place& writer : writers) LOCKSTEP_CHECK(writer.checkpointer->Wait(kLong).ok());
  }
  [[nodiscard]] int64_t BytesOf(int64_t step) const {
    int64_t bytes = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_ + "/" + checkpoint::FolderOfStep(step)))
      bytes += static_cast<int64_t>(entry.file_size());
    return bytes;
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-restore-XXXXXX";
  api::CheckpointSpec spec_;
};

// Where not every rank has the whole model.
Result<std::vector<NamedTensor>> HeldLayers(comm::Communicator& communicator, TrainingState& state) {
  if (dynamic_cast<FsdpState*>(&state) != nullptr) {
    const ShardedLayers& layers = testing::LayersOf(state);
    LOCKSTEP_TRY(auto all, layers.Collect(communicator, std::vector<int>(layers.described().size(), 0)));
    return communicator.rank() == 0 ? all : std::vector<NamedTensor>();
  }
  const StagedState& stages = testing::StagesOf(state);
  const std::vector<at::Tensor> held = stages.TensorsOf(communicator.rank());
  std::vector<NamedTensor> mine;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i].defined()) mine.push_back({stages.tensors()[i].name, held[i]});
  }
  return mine;
}

// For zero1.
Result<std::vector<NamedTensor>> MomentsOnRank0(comm::Communicator& communicator, TrainingState& state) {
  const ShardedOptimizer& shards = testing::ShardsOf(state);
  return shards.Collect(communicator, std::vector<int>(shards.described().size(), 0));
}

// Whether the state of this rank after Sync is the stored one; on all ranks of the round.
bool HoldsWhatWasStored(comm::Communicator& communicator, TrainingState& state, double step) {
  std::map<std::string, at::Tensor> stored;
  const auto marked = Marked(step);
  for (const NamedTensor& named : marked->Tensors()) stored[named.name] = named.tensor;
  const auto are_stored = [&](const std::vector<NamedTensor>& tensors) {
    return std::all_of(tensors.begin(), tensors.end(),
                       [&](const NamedTensor& named) { return named.tensor.equal(stored.at(named.name)); });
  };
  if (!state.has_whole_model()) {
    const auto layers = HeldLayers(communicator, state);
    return layers.ok() && are_stored(*layers);
  }
  if (!are_stored(state.Replicated())) return false;
  if (!state.is_divided()) return true;
  const auto moments = MomentsOnRank0(communicator, state);
  return moments.ok() && (communicator.rank() != 0 || are_stored(*moments));
}

struct Case {
  api::Strategy strategy;
  int world;
  double most;  // of all bytes, that any rank reads
};

class Restored : public RestoreTest, public ::testing::WithParamInterface<Case> {};

TEST_P(Restored, ByRanksOfWhichEachReadsItsPart) {
  const auto& [strategy, world, most] = GetParam();
  RoundConnector connector;
  auto ranks = StartRanks(world, [&, strategy = strategy, world = world](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    if (rank == 0) Save(120);
    auto communicator = connector.Enter(1, rank, world);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(strategy), kInput)).value();
    TrainingState& state = *owned;
    const auto source = state.Sync(**communicator, [&](TrainingState& restored) {
      return RestoreTogether(**communicator, *place.checkpointer, restored);
    });
    REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
    REQUIRE(state.step == 120);
    REQUIRE(HoldsWhatWasStored(**communicator, state, 120));
    parent.Send(std::to_string(place.store->bytes_read));
    return 0;
  });
  double sum = 0;
  std::vector<double> read;
  for (auto& rank : ranks)
    sum += read.emplace_back(std::stod(rank.channel().Receive(kPatience).value_or("-1")));
  ExpectAllSucceed(ranks);
  const auto all = static_cast<double>(BytesOf(120));
  for (std::size_t rank = 0; rank < read.size(); ++rank) EXPECT_LE(read[rank], most * all) << "rank " << rank;
  EXPECT_GE(sum, 0.99 * all);
  EXPECT_LE(sum, 1.4 * all) << "each byte once, but for the blocks that two ranks need";
}

INSTANTIATE_TEST_SUITE_P(
    All, Restored,
    ::testing::Values(Case{api::Strategy::kDdp, 1, 1.01}, Case{api::Strategy::kDdp, 3, 0.4},
                      Case{api::Strategy::kZero1, 1, 1.01}, Case{api::Strategy::kZero1, 3, 0.5},
                      Case{api::Strategy::kFsdp, 1, 1.01}, Case{api::Strategy::kFsdp, 3, 0.5},
                      Case{api::Strategy::kPipeline, 3, 0.5}, Case{api::Strategy::kHybrid, 4, 0.5}),
    [](const auto& test) {
      return std::string(api::NameOf(test.param.strategy)) + "Of" + std::to_string(test.param.world);
    });

// Corrupts the last bytes of the largest tensor, which only one rank reads.
TEST_F(RestoreTest, PassesOverWhatOneRankFindsDamaged) {
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    if (rank == 0) {
      Save(110);
      Save(120);
      const std::string shard =
          folder_ + "/" + checkpoint::FolderOfStep(120) + "/" + checkpoint::ShardName(1, {"uid-1", 3, 1});
      std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end).put('!');
      REQUIRE(file.good());
    }
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kZero1), kInput)).value();
    TrainingState& state = *owned;
    const auto source = state.Sync(**communicator, [&](TrainingState& restored) {
      return RestoreTogether(**communicator, *place.checkpointer, restored);
    });
    REQUIRE(source.ok() && state.step == 110);
    REQUIRE(HoldsWhatWasStored(**communicator, state, 110));
    const std::vector<protocol::CheckpointDamaged> damaged = place.checkpointer->TakeDamaged();
    REQUIRE(damaged.size() == (rank == 0 ? 1U : 0U));
    for (const auto& entry : damaged) REQUIRE(entry.reason.starts_with("file://"));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST_F(RestoreTest, HoldsNoStepWhereARankDoesNotReachTheStoreAndSucceedsInTheSameRoundOnceItDoes) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    if (rank == 0) Save(120);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kDdp), kInput)).value();
    TrainingState& state = *owned;
    for (const int without_store : {1, 0}) {
      place.store->is_away = rank == without_store;
      const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
      REQUIRE(!restored.ok() && restored.error().code == ErrorCode::kUnavailable);
      REQUIRE(restored.error().message.find("the store is away") != std::string::npos);
      REQUIRE(state.step == -1);
    }
    place.store->is_away = false;
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
    REQUIRE(restored.ok() && *restored && state.step == 120 && !state.is_torn);
    REQUIRE(HoldsWhatWasStored(**communicator, state, 120));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST_F(RestoreTest, LeavesWhatARankHoldsAloneUntilAllHaveReadTheirPart) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    if (rank == 0) Save(120);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kZero1), kInput)).value();
    TrainingState& state = *owned;
    state.step = 130;  // of which moments were lost
    const int64_t before = testing::ReplicatedOf(state).Digest();
    place.store->is_away = rank == 1;
    REQUIRE(!RestoreTogether(**communicator, *place.checkpointer, state).ok());
    REQUIRE(state.step == 130 && !state.is_torn && testing::ReplicatedOf(state).Digest() == before);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST_F(RestoreTest, NamesWhatDoesNotFitOnEveryRank) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    if (rank == 0) Save(120);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kDdp, 1600), kInput)).value();
    TrainingState& state = *owned;
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
    REQUIRE(!restored.ok() && restored.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(restored.error().message.find("spec.checkpoint.resume: file://" + folder_) != std::string::npos);
    REQUIRE(restored.error().message.find("has another shape or type") != std::string::npos);
    REQUIRE(place.store->bytes_read == 0);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

api::TrainingSpec WithAFrozenLayer(api::Strategy strategy) {
  api::TrainingSpec spec = Training(strategy);
  spec.optimizer.groups = {{.match = {"fc1.*"}, .frozen = true}};
  return spec;
}

TEST_F(RestoreTest, ReadsACheckpointWithStateOfParametersThatAreFrozenNow) {
  for (const auto strategy : {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kPipeline}) {
    SCOPED_TRACE(api::NameOf(strategy));
    RoundConnector connector;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      if (rank == 0) Save(120);
      auto communicator = connector.Enter(1, rank, 2);
      REQUIRE(communicator.ok());
      Place place = Open();
      const auto state = std::move(MakeTrainingState(WithAFrozenLayer(strategy), kInput)).value();
      const auto source = state->Sync(**communicator, [&](TrainingState& restored) {
        return RestoreTogether(**communicator, *place.checkpointer, restored);
      });
      REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
      REQUIRE(HoldsWhatWasStored(**communicator, *state, 120));
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

TEST_F(RestoreTest, SaysThatAParameterWasFrozenWhenItIsTrainedNow) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    Save(120, WithAFrozenLayer(api::Strategy::kDdp));
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto state = std::move(MakeTrainingState(Training(api::Strategy::kDdp), kInput)).value();
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, *state);
    REQUIRE(!restored.ok() && restored.error().code == ErrorCode::kInvalidArgument);
    const auto says = [&](const std::string& text) {
      return restored.error().message.find(text) != std::string::npos;
    };
    REQUIRE(says("optimizer.exp_avg.fc1.weight is not in it, because fc1.weight was frozen"));
    REQUIRE(says("spec.checkpoint.restore: Weights"));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST_F(RestoreTest, IsFalseOnEveryRankWhereNothingIsStored) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kDdp, 8), kInput)).value();
    TrainingState& state = *owned;
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
    REQUIRE(restored.ok() && !*restored);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

struct OtherTraining {
  std::string name;
  api::TrainingSpec spec;
  std::string missing;  // the first tensor that the checkpoint has not
};

std::vector<OtherTraining> OtherTrainings() {
  std::vector<OtherTraining> all;
  for (const auto strategy :
       {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kFsdp, api::Strategy::kPipeline}) {
    all.push_back({std::string(api::NameOf(strategy)), Training(strategy), "optimizer.momentum."});
    all.back().spec.optimizer = {.name = api::OptimizerName::kSgd, .learning_rate = 0.01, .momentum = 0.9};
  }
  all.push_back({"outer", Training(api::Strategy::kLocalsgd), "outer.momentum."});
  all.back().spec.sync.outer = api::OuterSpec{};
  return all;
}

bool IsOfTheOptimizer(const std::string& name) {
  return name.starts_with("optimizer.") || name.starts_with("outer.");
}

// Whether the rank holds the stored weights, and zeros for the optimizer.
bool HoldsTheWeightsAlone(comm::Communicator& communicator, TrainingState& state, double step) {
  std::map<std::string, at::Tensor> stored;
  const auto marked = Marked(step);
  for (const NamedTensor& named : marked->Tensors()) stored[named.name] = named.tensor;
  std::vector<NamedTensor> held = state.Replicated();
  if (!state.has_whole_model()) {
    const auto layers = HeldLayers(communicator, state);
    if (!layers.ok()) return false;
    held.insert(held.end(), layers->begin(), layers->end());
  } else if (state.is_divided()) {
    const auto moments = MomentsOnRank0(communicator, state);
    if (!moments.ok()) return false;
    if (communicator.rank() == 0) held.insert(held.end(), moments->begin(), moments->end());
  }
  return std::all_of(held.begin(), held.end(), [&](const NamedTensor& named) {
    if (IsOfTheOptimizer(named.name)) return named.tensor.count_nonzero().item<int64_t>() == 0;
    return named.tensor.equal(stored.at(named.name));
  });
}

TEST_F(RestoreTest, TakesTheWeightsAloneOfAnotherJobsCheckpointWhereTheSpecSaysSo) {
  for (const OtherTraining& other : OtherTrainings()) {
    SCOPED_TRACE(other.name);
    RoundConnector connector;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      if (rank == 0 && !std::filesystem::exists(folder_ + "/" + checkpoint::FolderOfStep(120))) Save(120);
      auto communicator = connector.Enter(1, rank, 2);
      REQUIRE(communicator.ok());
      const auto owned = std::move(MakeTrainingState(other.spec, kInput)).value();
      TrainingState& state = *owned;
      Place place = Open("uid-2");
      const auto refused = RestoreTogether(**communicator, *place.checkpointer, state);
      REQUIRE(!refused.ok() && refused.error().code == ErrorCode::kInvalidArgument);
      REQUIRE(refused.error().message.find(other.missing) != std::string::npos);
      REQUIRE(refused.error().message.find("set spec.checkpoint.restore: Weights") != std::string::npos);

      if (rank == 0 && state.has_whole_model()) {  // a source of its state died half-way
        const at::NoGradGuard no_grad;
        for (const NamedTensor& named : state.Replicated()) named.tensor.fill_(7);
        state.Tear();
      }
      spec_.restore = api::RestoredPart::kWeights;
      place = Open("uid-2");
      ::testing::internal::CaptureStderr();
      const auto source = state.Sync(**communicator, [&](TrainingState& restored) {
        return RestoreTogether(**communicator, *place.checkpointer, restored);
      });
      const std::string log = ::testing::internal::GetCapturedStderr();
      REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
      REQUIRE(state.step == 0);
      REQUIRE(HoldsTheWeightsAlone(**communicator, state, 120));
      const bool is_said =
          log.find("\"not_taken\":\"evaluations, optimizer.exp_avg, optimizer.exp_avg_sq, step\"") !=
          std::string::npos;
      REQUIRE(is_said == (rank == 0));
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

// A job that began that way continues from its own checkpoints.
TEST_F(RestoreTest, TakesAllOfAnOwnCheckpoint) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Save(120);
    auto communicator = connector.Enter(1, rank, 1);
    REQUIRE(communicator.ok());
    spec_.restore = api::RestoredPart::kWeights;
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kDdp), kInput)).value();
    TrainingState& state = *owned;
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
    REQUIRE(restored.ok() && *restored && state.step == 120);
    REQUIRE(HoldsWhatWasStored(**communicator, state, 120));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// The weights of another model do not fit this one.
TEST_F(RestoreTest, RefusesTheWeightsOfAnotherModel) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Save(120);
    auto communicator = connector.Enter(1, rank, 1);
    REQUIRE(communicator.ok());
    spec_.restore = api::RestoredPart::kWeights;
    Place place = Open("uid-2");
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kDdp, 1600), kInput)).value();
    TrainingState& state = *owned;
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
    REQUIRE(!restored.ok() && restored.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(restored.error().message.find("has another shape or type; use Never") != std::string::npos);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train

#pragma once
// Checkpoints of three ranks in a temporary folder, and a store that counts what is read of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/file_store.h"
#include "runtime/train/saves/restore.h"
#include "tests/support/state_of.h"
#include "tests/unit/runtime/checkpoint/memory_exchange.h"

namespace lockstep::train::restore_fixture {

using checkpoint::Checkpointer;

inline constexpr std::chrono::seconds kLong(60);
inline const ModelInput kInput = {{1, 8, 8}, 10};

// With two moments per parameter about 30 MB, most of them in three layers.
inline api::TrainingSpec Training(api::Strategy strategy, int64_t hidden = 900) {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {hidden, hidden, hidden, hidden};
  spec.optimizer = {.name = api::OptimizerName::kAdam, .learning_rate = 0.01};
  spec.pipeline.stages = 2;
  spec.strategy = strategy;
  return spec;
}

// Different numbers in every element of every tensor.
inline std::unique_ptr<TrainingState> Marked(double step,
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
  static Result<StateSource> SyncFrom(const Place& place, comm::Communicator& communicator,
                                      TrainingState& state) {
    return state.Sync(communicator, [&](TrainingState& restored) {
      return RestoreTogether(communicator, *place.checkpointer, restored);
    });
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
inline Result<std::vector<NamedTensor>> HeldLayers(comm::Communicator& communicator, TrainingState& state) {
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
inline Result<std::vector<NamedTensor>> MomentsOnRank0(comm::Communicator& communicator,
                                                       TrainingState& state) {
  const ShardedOptimizer& shards = testing::ShardsOf(state);
  return shards.Collect(communicator, std::vector<int>(shards.described().size(), 0));
}

// Whether the state of this rank after Sync is the one that a training of `spec` stored, and all else is zero;
// on all ranks of the round.
inline bool HoldsWhatWasStored(comm::Communicator& communicator, TrainingState& state, double step,
                               const api::TrainingSpec& spec = Training(api::Strategy::kDdp)) {
  std::map<std::string, at::Tensor> stored;
  const auto marked = Marked(step, spec);
  for (const NamedTensor& named : marked->Tensors()) stored[named.name] = named.tensor;
  const auto are_stored = [&](const std::vector<NamedTensor>& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [&](const NamedTensor& named) {
      const auto found = stored.find(named.name);
      return found == stored.end() ? named.tensor.count_nonzero().item<int64_t>() == 0
                                   : named.tensor.equal(found->second);
    });
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

}  // namespace lockstep::train::restore_fixture

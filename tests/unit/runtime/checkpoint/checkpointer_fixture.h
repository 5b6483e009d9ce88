#pragma once
// Checkpointers of one to three ranks in this process over the same folder, with a store whose faults the
// test sets.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/checkpoint/file_store.h"
#include "runtime/checkpoint/open_store.h"
#include "tests/unit/runtime/checkpoint/complete_steps.h"
#include "tests/unit/runtime/checkpoint/memory_exchange.h"
#include "tests/unit/runtime/checkpoint/whole_state.h"

namespace lockstep::checkpoint {

constexpr auto kLong = std::chrono::seconds(60);

// A store whose requests fail or wait when the test says so.
struct Faults {
  std::mutex mutex;
  std::condition_variable changed;
  std::string refused;   // part of the name of objects whose Put fails
  std::string held;      // … whose Put waits until this changes
  std::string rejected;  // … whose Put is rejected
  int late_by = 0;       // … and done anyway after so many checks for it; 0: never
  int holding = 0;       // requests that wait now
  std::optional<ErrorCode> get_error, list_error;
  bool get_throws = false;
  std::atomic<int> unseen_reads = 0;  // number of reads that do not find a new object

  void Set(std::string Faults::*member, const std::string& value) {
    const std::lock_guard lock(mutex);
    this->*member = value;
    changed.notify_all();
  }
  [[nodiscard]] bool IsHolding() {
    const std::lock_guard lock(mutex);
    return holding > 0;
  }
};

class FaultyStore final : public ObjectStore {
 public:
  FaultyStore(std::unique_ptr<ObjectStore> store, Faults& faults)
      : store_(std::move(store)), faults_(faults) {}

  Result<void> Put(const std::string& name, std::string_view content) override {
    const auto matches = [&](const std::string& part) {
      return !part.empty() && name.find(part) != std::string::npos;
    };
    {
      std::unique_lock lock(faults_.mutex);
      const int waits = matches(faults_.held) ? 1 : 0;
      faults_.holding += waits;
      faults_.changed.wait_for(lock, kLong, [&] { return !matches(faults_.held); });
      faults_.holding -= waits;
      if (matches(faults_.refused)) return Error{ErrorCode::kUnavailable, name + " refused"};
      if (matches(faults_.rejected)) {
        late_ = {name, std::string(content)};
        return Error{ErrorCode::kInvalidArgument, name + " rejected"};
      }
    }
    return store_->Put(name, content);
  }
  Result<std::string> Get(const std::string& name) override {
    if (name == late_.first && faults_.late_by > 0 && --faults_.late_by == 0)
      LOCKSTEP_TRY(store_->Put(name, late_.second));
    if (faults_.get_error) return Error{*faults_.get_error, "the store is away"};
    if (faults_.get_throws) throw std::bad_alloc();
    return store_->Get(name);
  }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    if (faults_.unseen_reads > 0) {
      --faults_.unseen_reads;
      return Error{ErrorCode::kNotFound, name + " is not there"};
    }
    return store_->Read(name, offset, target);
  }
  Result<std::vector<ObjectInfo>> List() override {
    if (faults_.list_error) return Error{*faults_.list_error, "the store is away"};
    return store_->List();
  }
  Result<void> Delete(const std::string& name) override { return store_->Delete(name); }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return store_->UriOf(name); }

 private:
  std::pair<std::string, std::string> late_;  // name and content
  const std::unique_ptr<ObjectStore> store_;
  Faults& faults_;
};

inline std::vector<NamedTensor> SomeTensors(int64_t seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  return {{"model/conv1.weight", torch::randn({8, 3, 3, 3})},
          {"model/transposed", torch::randn({5, 7}).t()},
          {"model/bf16", torch::randn({33}).to(at::kBFloat16)},
          {"model/half", torch::randn({2, 2}).to(at::kHalf)},
          {"model/f64", torch::randn({3}).to(at::kDouble)},
          {"model/empty", torch::empty({0, 4})},
          {"optimizer/step", torch::full({}, seed, at::kLong)},
          {"optimizer/i32", torch::randint(-9, 9, {6}).to(at::kInt)},
          {"optimizer/i16", torch::randint(-9, 9, {6}).to(at::kShort)},
          {"optimizer/i8", torch::randint(-9, 9, {5}).to(at::kChar)},
          {"optimizer/u8", torch::randint(0, 9, {5}).to(at::kByte)},
          {"optimizer/mask", torch::randint(0, 2, {9}).to(at::kBool)}};
}

inline void ExpectEqual(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected) {
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& named : found)
    EXPECT_TRUE(by_name.emplace(named.name, named.tensor).second) << named.name;
  EXPECT_EQ(by_name.size(), expected.size());
  for (const NamedTensor& named : expected) {
    ASSERT_TRUE(by_name.contains(named.name)) << named.name;
    EXPECT_EQ(by_name[named.name].scalar_type(), named.tensor.scalar_type()) << named.name;
    EXPECT_TRUE(at::equal(by_name[named.name], named.tensor)) << named.name;
  }
}

class CheckpointerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    spec_.uri = "file://" + folder_;
    spec_.keep_last = 3;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Checkpointer> Open(const std::string& uid = "uid-1", const Json& training = {{"seed", 7}}) {
    auto store = std::make_unique<FaultyStore>(std::move(OpenFileStore(folder_)).value(), faults_);
    return std::make_unique<Checkpointer>(spec_, protocol::JobIdentity{"default", "mnist", uid}, training,
                                          std::move(store));
  }
  std::vector<std::unique_ptr<Checkpointer>> OpenRanks(int world) {
    std::vector<std::unique_ptr<Checkpointer>> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(Open());
    return ranks;
  }
  // The state of a rank at the step; every rank of the round calls Save with the same one.
  static Snapshot At(int64_t step, int rank = 0, int world = 1, int64_t round = 1) {
    return {step, round, rank, world, SomeTensors(step)};
  }
  void SaveAll(std::vector<std::unique_ptr<Checkpointer>>& ranks, int64_t step, int64_t round = 1) {
    const int world = static_cast<int>(ranks.size());
    for (int rank = 0; rank < world; ++rank) {
      ranks[static_cast<std::size_t>(rank)]->Save(At(step, rank, world, round), exchange_);
    }
    for (auto& rank : ranks) EXPECT_TRUE(rank->Wait(kLong).ok());
  }
  void SaveAlone(Checkpointer& checkpointer, int64_t step, int64_t round = 1) {
    checkpointer.Save(At(step, 0, 1, round), nullptr);
    EXPECT_TRUE(checkpointer.Wait(kLong).ok());
    const auto outcomes = checkpointer.TakeOutcomes();
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_FALSE(outcomes.front().error) << outcomes.front().error->ToString();
  }
  static int64_t StepOf(const Result<std::optional<LoadedState>>& loaded) {
    return loaded.ok() && loaded->has_value() ? (*loaded)->manifest.step : -1;
  }
  [[nodiscard]] std::vector<int64_t> Steps() const {
    return CompleteSteps(*OpenForCommand(spec_.uri).value());
  }
  [[nodiscard]] std::filesystem::path PathOf(int64_t step, const std::string& part) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/" + FolderOfStep(step))) {
      if (entry.path().filename().string().starts_with(part)) return entry.path();
    }
    return {};
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-checkpoints-XXXXXX";
  api::CheckpointSpec spec_;
  Faults faults_;
  std::shared_ptr<MemoryExchange> exchange_ = std::make_shared<MemoryExchange>();
};

}  // namespace lockstep::checkpoint

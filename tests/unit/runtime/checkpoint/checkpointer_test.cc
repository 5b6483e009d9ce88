// Saving and loading by one to three ranks, each a Checkpointer of this process over the same folder.

#include "runtime/checkpoint/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "runtime/checkpoint/file_store.h"
#include "runtime/common/base/file.h"
#include "tests/support/eventually.h"
#include "tests/unit/runtime/checkpoint/complete_steps.h"
#include "tests/unit/runtime/checkpoint/memory_exchange.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::Eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kLong = 60s;

// A store whose requests fail, or wait, as the test says.
struct Faults {
  std::mutex mutex;
  std::condition_variable changed;
  std::string refused;   // part of the name of objects that cannot be put
  std::string held;      // … whose Put waits until this is another
  std::string rejected;  // … whose Put is answered by a refusal
  int late_by = 0;       // … and done all the same before so many looks at it; 0: never
  int holding = 0;       // requests that wait now
  std::optional<ErrorCode> get_error, list_error;
  bool get_throws = false;
  std::atomic<int> unseen_reads = 0;  // so many that do not find what was put

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

std::vector<NamedTensor> SomeTensors(int64_t seed) {
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

void ExpectEqual(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected) {
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
  // What a rank would have at the step; every rank of the round calls Save with the same.
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

TEST_F(CheckpointerTest, LoadsWhatAnyNumberOfRanksSaved) {
  for (int world = 1; world <= 3; ++world) {
    auto ranks = OpenRanks(world);
    SaveAll(ranks, 10 * world);
    const auto outcomes = ranks[0]->TakeOutcomes();
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_EQ(outcomes[0].step, 10 * world);
    EXPECT_EQ(outcomes[0].uri, spec_.uri + "/" + FolderOfStep(10 * world));
    EXPECT_GT(outcomes[0].bytes, 0);
    const auto loaded = Open()->Load(10 * world);
    ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
    EXPECT_EQ(loaded->manifest.world, world);
    EXPECT_EQ(loaded->manifest.job_uid, "uid-1");
    EXPECT_EQ(loaded->manifest.training, (Json{{"seed", 7}}));
    ExpectEqual(loaded->tensors, SomeTensors(10 * world));
  }
}

TEST_F(CheckpointerTest, IsReadByTheProgramOfTheReadme) {
  auto ranks = OpenRanks(2);
  SaveAll(ranks, 120);
  const std::string readme = *ReadFile(LOCKSTEP_SOURCE_DIR "/runtime/checkpoint/README.md");
  const std::size_t begin = readme.find("```python\n") + 10;
  ASSERT_TRUE(WriteFile(folder_ + "/read.py", readme.substr(begin, readme.find("```", begin) - begin)).ok());
  const std::string run =
      "python3 " + folder_ + "/read.py " + folder_ + "/" + FolderOfStep(120) + " >" + folder_ + "/output";
  ASSERT_EQ(std::system(run.c_str()), 0);
  const std::string output = *ReadFile(folder_ + "/output");
  for (const NamedTensor& named : SomeTensors(120)) EXPECT_THAT(output, HasSubstr(named.name + " "));
  EXPECT_THAT(output, HasSubstr("model/transposed F32 [7, 5] "));
}

TEST_F(CheckpointerTest, NamesInAManifestOnlyWhatIsThere) {
  auto checkpointer = Open();
  faults_.unseen_reads = 3;  // it comes a moment after the store has said so
  SaveAlone(*checkpointer, 1);
  EXPECT_EQ(faults_.unseen_reads, 0);

  faults_.unseen_reads = 1'000'000;
  checkpointer->Save(At(2), nullptr);
  EXPECT_TRUE(checkpointer->Wait(kLong).ok());
  const auto outcomes = checkpointer->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  ASSERT_TRUE(outcomes.front().error);
  EXPECT_THAT(outcomes.front().error->message, HasSubstr("the store took it, but does not have it"));
  faults_.unseen_reads = 0;
  EXPECT_EQ(StepOf(checkpointer->Resume()), 1);
}

TEST_F(CheckpointerTest, DividesTheBytesOverTheRanks) {
  auto ranks = OpenRanks(3);
  for (int rank = 0; rank < 3; ++rank) {
    Snapshot snapshot{.step = 1, .round = 1, .rank = rank, .world = 3, .tensors = {}};
    for (int i = 0; i < 30; ++i) snapshot.tensors.push_back({std::to_string(i), torch::ones({1000})});
    ranks[static_cast<std::size_t>(rank)]->Save(snapshot, exchange_);
  }
  ASSERT_TRUE(ranks[0]->Wait(kLong).ok());
  const auto loaded = Open()->Load(1);
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  for (const ShardEntry& shard : loaded->manifest.shards) EXPECT_EQ(shard.tensors.size(), 10U) << shard.name;
}

TEST_F(CheckpointerTest, SavesTheStateOfTheMomentOfTheCall) {
  const auto checkpointer = Open();
  faults_.Set(&Faults::held, "shard-");
  at::Tensor weight = torch::ones({4});
  checkpointer->Save({.step = 1, .round = 1, .tensors = {{"weight", weight}}}, nullptr);
  weight.zero_();
  faults_.Set(&Faults::held, "");
  ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  EXPECT_TRUE(at::equal(checkpointer->Load(1)->tensors.at(0).tensor, torch::ones({4})));
}

TEST_F(CheckpointerTest, TellsWhatEvaluationsCameToForTheSameJobAndRuleOnly) {
  const Json patient = {{"earlyStop", {{"patience", 2}}}};
  const auto checkpointer = Open("uid-1", patient);
  Snapshot snapshot = At(7);
  snapshot.evaluations = {.step = 5, .newest = 0.5, .best = 0.875, .without_improvement = 3};
  checkpointer->Save(snapshot, nullptr);
  ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  const auto resumed_by = [&](const std::string& uid, const Json& training) {
    return std::move(Open(uid, training)->Resume()).value()->manifest.evaluations;
  };
  const EvaluationRecord record = resumed_by("uid-1", patient);
  EXPECT_EQ(record.step, 5);
  EXPECT_EQ(record.newest, 0.5);
  EXPECT_EQ(record.best, 0.875);
  EXPECT_EQ(record.without_improvement, 3);
  EXPECT_EQ(resumed_by("uid-2", patient).step, -1);
  EXPECT_EQ(resumed_by("uid-1", {{"earlyStop", {{"patience", 3}}}}).step, -1);
}

// Of a process that restored `first` steps and made those up to the snapshot's.
std::vector<protocol::HistoryRecord> HistoryBetween(int64_t first, int64_t last) {
  std::vector<protocol::HistoryRecord> history = {{.kind = protocol::HistoryKind::kRound, .step = first}};
  for (int64_t step = first + 1; step <= last; ++step) history.push_back({.step = step});
  return history;
}

TEST_F(CheckpointerTest, KeepsTheHistoryThroughProcesses) {
  const auto stored_steps = [&] {
    std::vector<int64_t> steps;
    const protocol::HistoryText read = protocol::ReadHistory(*ReadFile(folder_ + "/history.jsonl"));
    EXPECT_THAT(read.problems, IsEmpty());
    for (const auto& record : read.records) {
      if (record.kind == protocol::HistoryKind::kStep) steps.push_back(record.step);
    }
    return steps;
  };
  const auto save = [&](Checkpointer& checkpointer, int64_t first, int64_t last) {
    Snapshot snapshot = At(last);
    snapshot.history = HistoryBetween(first, last);
    checkpointer.Save(snapshot, nullptr);
    ASSERT_TRUE(checkpointer.Wait(kLong).ok());
  };
  const auto first = Open();
  SaveAlone(*first, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/history.jsonl")) << "there was none to keep";
  save(*first, 0, 3);
  save(*first, 0, 5);
  EXPECT_THAT(stored_steps(), ElementsAre(1, 2, 3, 4, 5));
  const auto second = Open();
  save(*second, 3, 4);  // the checkpoint of step 5 was damaged, say
  EXPECT_THAT(stored_steps(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Steps(), ElementsAre(5, 4, 3, 1)) << "it is in no checkpoint's way";
}

TEST_F(CheckpointerTest, SavesWhereNoHistoryCanBeWritten) {
  const auto checkpointer = Open();
  Snapshot snapshot = At(3);
  snapshot.history = HistoryBetween(0, 3);
  faults_.Set(&Faults::refused, "history");
  checkpointer->Save(snapshot, nullptr);
  ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  const auto outcomes = checkpointer->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_FALSE(outcomes[0].error) << outcomes[0].error->ToString();
  EXPECT_THAT(Steps(), ElementsAre(3));
}

TEST_F(CheckpointerTest, SavesWhereAHistoryHasNoRoomInMemory) {
  const auto checkpointer = Open();
  Snapshot snapshot = At(3);
  snapshot.history = HistoryBetween(0, 3);
  faults_.get_throws = true;
  checkpointer->Save(snapshot, nullptr);
  ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  const auto outcomes = checkpointer->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_FALSE(outcomes[0].error) << outcomes[0].error->ToString();
  EXPECT_THAT(Steps(), ElementsAre(3));
}

TEST_F(CheckpointerTest, LeavesAHistoryAloneThatItCannotRead) {
  ASSERT_TRUE(WriteFile(folder_ + "/history.jsonl", "precious").ok());
  const auto checkpointer = Open();
  Snapshot snapshot = At(3);
  snapshot.history = HistoryBetween(2, 3);
  faults_.get_error = ErrorCode::kUnavailable;
  checkpointer->Save(snapshot, nullptr);
  ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  EXPECT_EQ(*ReadFile(folder_ + "/history.jsonl"), "precious");
  EXPECT_THAT(Steps(), ElementsAre(3));
}

TEST_F(CheckpointerTest, WaitsNoLongerThanAsked) {
  const auto checkpointer = Open();
  faults_.Set(&Faults::held, "shard-");
  checkpointer->Save(At(1), nullptr);
  EXPECT_EQ(checkpointer->Wait(1ms).error().code, ErrorCode::kDeadlineExceeded);
  faults_.Set(&Faults::held, "");
  EXPECT_TRUE(checkpointer->Wait(kLong).ok());
}

TEST_F(CheckpointerTest, ExistsOnlyOnceItsManifestDoes) {
  const auto checkpointer = Open();
  SaveAlone(*checkpointer, 1);
  for (const char* refused : {"shard-", "manifest.json"}) {
    faults_.Set(&Faults::refused, refused);
    checkpointer->Save(At(2), nullptr);
    ASSERT_TRUE(checkpointer->Wait(kLong).ok());
    const auto outcomes = checkpointer->TakeOutcomes();
    ASSERT_EQ(outcomes.size(), 1U);
    ASSERT_TRUE(outcomes[0].error);
    EXPECT_EQ(outcomes[0].error->code, ErrorCode::kUnavailable);
    EXPECT_EQ(checkpointer->Load(2).error().code, ErrorCode::kNotFound);
    EXPECT_THAT(Steps(), ElementsAre(1));
    EXPECT_EQ(StepOf(checkpointer->LoadNewest()), 1);
  }
}

TEST_F(CheckpointerTest, AbandonedWhileItWaitsForAShardIsNoCheckpoint) {
  auto ranks = OpenRanks(2);
  SaveAll(ranks, 1);
  (void)ranks[0]->TakeOutcomes();
  const int before = exchange_->waits();
  ranks[0]->Save(At(2, 0, 2), exchange_);  // rank 1 died
  ASSERT_TRUE(Eventually([&] { return exchange_->waits() > before; }));
  EXPECT_FALSE(PathOf(2, "shard-").empty());
  ranks[0]->Abandon();
  ASSERT_TRUE(ranks[0]->Wait(kLong).ok());
  EXPECT_THAT(ranks[0]->TakeOutcomes(), IsEmpty());
  EXPECT_THAT(Steps(), ElementsAre(1));
  const auto loaded = ranks[0]->LoadNewest();
  ASSERT_EQ(StepOf(loaded), 1);
  ExpectEqual((*loaded)->tensors, SomeTensors(1));
}

TEST_F(CheckpointerTest, TheNextRoundSavesTheAbandonedStepAnew) {
  auto ranks = OpenRanks(2);
  ranks[0]->Save(At(2, 0, 2), exchange_);
  ASSERT_TRUE(Eventually([&] { return exchange_->waits() > 0; }));
  ranks[0]->Abandon();
  SaveAlone(*ranks[0], 2, /*round=*/2);
  const auto loaded = ranks[0]->Load(2);
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  EXPECT_EQ(loaded->manifest.round, 2);
  ExpectEqual(loaded->tensors, SomeTensors(2));
}

TEST_F(CheckpointerTest, EndsWithoutWaitingForAShardThatNeverComes) {
  auto checkpointer = Open();
  checkpointer->Save(At(2, 0, 2), exchange_);
  ASSERT_TRUE(Eventually([&] { return exchange_->waits() > 0; }));
  const auto start = std::chrono::steady_clock::now();
  checkpointer.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

TEST_F(CheckpointerTest, NamesTheRankThatCouldNotStoreItsShard) {
  auto ranks = OpenRanks(3);
  faults_.Set(&Faults::refused, "shard-00002");
  SaveAll(ranks, 5);
  const auto outcomes = ranks[0]->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  ASSERT_TRUE(outcomes[0].error);
  EXPECT_EQ(outcomes[0].error->code, ErrorCode::kUnavailable);
  EXPECT_THAT(outcomes[0].error->message, HasSubstr("rank 2"));
  EXPECT_TRUE(ranks[2]->TakeOutcomes().at(0).error);
  EXPECT_FALSE(ranks[1]->TakeOutcomes().at(0).error);
  EXPECT_THAT(Steps(), IsEmpty());
}

TEST_F(CheckpointerTest, ANewerSaveReplacesAWaitingOneOnEveryRank) {
  auto ranks = OpenRanks(2);
  faults_.Set(&Faults::held, "shard-00001");
  ranks[0]->Save(At(1, 0, 2), exchange_);
  ranks[1]->Save(At(1, 1, 2), exchange_);
  ASSERT_TRUE(Eventually([&] { return faults_.IsHolding(); }));
  ranks[1]->Save(At(2, 1, 2), exchange_);
  ranks[1]->Save(At(3, 1, 2), exchange_);  // replaces step 2, which rank 0 begins all the same
  faults_.Set(&Faults::held, "");
  ASSERT_TRUE(ranks[0]->Wait(kLong).ok());
  ranks[0]->Save(At(2, 0, 2), exchange_);
  ASSERT_TRUE(ranks[0]->Wait(kLong).ok());
  ranks[0]->Save(At(3, 0, 2), exchange_);
  ASSERT_TRUE(ranks[0]->Wait(kLong).ok());
  const auto outcomes = ranks[0]->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 3U);
  EXPECT_FALSE(outcomes[0].error);
  ASSERT_TRUE(outcomes[1].error);
  EXPECT_EQ(outcomes[1].error->code, ErrorCode::kAborted);
  EXPECT_FALSE(outcomes[2].error);
  EXPECT_THAT(Steps(), ElementsAre(3, 1));
}

using Break = void (*)(const std::filesystem::path&);
struct Damage {
  const char* name;
  const char* object;
  Break apply;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class DamagedCheckpoint : public CheckpointerTest, public ::testing::WithParamInterface<Damage> {};

void FlipLastByte(const std::filesystem::path& path) {
  std::string content = *ReadFile(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  std::ofstream(path) << content;
}
void CutInHalf(const std::filesystem::path& path) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
}
void Empty(const std::filesystem::path& path) { std::filesystem::resize_file(path, 0); }
void Remove(const std::filesystem::path& path) { std::filesystem::remove(path); }
void ExchangeForOlder(const std::filesystem::path& path) {
  const auto older = path.parent_path().parent_path() / FolderOfStep(1) / path.filename();
  std::filesystem::copy_file(older, path, std::filesystem::copy_options::overwrite_existing);
}
void WriteByANewerVersion(const std::filesystem::path& path) {
  std::ofstream(path) << R"({"formatVersion":2,"layout":"unknown"})";
}

TEST_P(DamagedCheckpoint, IsPassedOverForTheOneBefore) {
  auto ranks = OpenRanks(2);
  SaveAll(ranks, 1);
  SaveAll(ranks, 2);
  ASSERT_EQ(StepOf(ranks[0]->LoadNewest()), 2);
  const auto path = PathOf(2, GetParam().object);
  ASSERT_FALSE(path.empty());
  GetParam().apply(path);
  EXPECT_FALSE(ranks[0]->Load(2).ok());
  for (const auto& loaded : {ranks[0]->LoadNewest(), ranks[0]->Resume()}) {
    ASSERT_EQ(StepOf(loaded), 1);
    ExpectEqual((*loaded)->tensors, SomeTensors(1));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedCheckpoint,
    ::testing::Values(Damage{"ShardWithAnotherBit", "shard-00001", FlipLastByte},
                      Damage{"ShardCut", "shard-00000", CutInHalf},
                      Damage{"ShardEmpty", "shard-00001", Empty}, Damage{"ShardGone", "shard-00000", Remove},
                      Damage{"ShardOfAnotherStep", "shard-00001", ExchangeForOlder},
                      Damage{"ManifestCut", "manifest", CutInHalf},
                      Damage{"ManifestEmpty", "manifest", Empty}, Damage{"ManifestGone", "manifest", Remove},
                      Damage{"ManifestOfAnotherStep", "manifest", ExchangeForOlder},
                      Damage{"ManifestOfANewerVersion", "manifest", WriteByANewerVersion}),
    [](const auto& test) { return test.param.name; });

// Without the newest checkpoint the job would lose what it had learnt: better to wait for the store.
TEST_F(CheckpointerTest, AStoreThatIsAwayIsAnErrorAndNotAnAbsence) {
  const auto checkpointer = Open();
  SaveAlone(*checkpointer, 1);
  faults_.get_error = ErrorCode::kUnavailable;
  EXPECT_EQ(checkpointer->LoadNewest().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(checkpointer->Resume().error().code, ErrorCode::kUnavailable);
  faults_.get_error.reset();
  faults_.list_error = ErrorCode::kUnavailable;
  EXPECT_EQ(checkpointer->LoadNewest().error().code, ErrorCode::kUnavailable);
}

TEST_F(CheckpointerTest, KeepsTheNewest) {
  spec_.keep_last = 2;
  auto ranks = OpenRanks(2);
  for (int64_t step = 1; step <= 4; ++step) SaveAll(ranks, step);
  EXPECT_THAT(Steps(), ElementsAre(4, 3));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(2))) << "its shards go too";
  ASSERT_TRUE(ranks[0]->Load(3).ok());
}

TEST_F(CheckpointerTest, KeepsTheFirstOfEachIntervalForGood) {
  spec_.keep_last = 1;
  spec_.keep_every_steps = 10;
  const auto checkpointer = Open();
  for (const int64_t step : {3, 6, 11, 14, 20, 29, 45, 46, 47}) SaveAlone(*checkpointer, step);
  EXPECT_THAT(Steps(), ElementsAre(47, 45, 20, 11));
  ASSERT_TRUE(checkpointer->Load(11).ok());
}

TEST_F(CheckpointerTest, RemovesTheRestOfAnInterruptedSaveWithTheNextOne) {
  const auto checkpointer = Open();
  const std::string shard = folder_ + "/" + FolderOfStep(1) + "/shard-00001-of-00002.round-1.safetensors";
  std::filesystem::create_directories(std::filesystem::path(shard).parent_path());
  ASSERT_TRUE(WriteFile(shard, "of a rank whose rank 0 was killed").ok());
  SaveAlone(*checkpointer, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1)));
}

// Its manifest may come after the next one.
TEST_F(CheckpointerTest, RemovesTheShardsOfAManifestWhoseFateIsNotKnownWithTheNextSaveButOne) {
  const auto checkpointer = Open();
  faults_.Set(&Faults::refused, "manifest.json");
  checkpointer->Save(At(1), nullptr);
  ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  (void)checkpointer->TakeOutcomes();
  faults_.Set(&Faults::refused, "");
  SaveAlone(*checkpointer, 2);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1)));
  SaveAlone(*checkpointer, 3);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1)));
}

// On a full disk they would take the room that the next save needs.
TEST_F(CheckpointerTest, RemovesTheShardsOfASaveThatFailed) {
  auto ranks = OpenRanks(3);
  for (const char* refused : {"shard-00000", "shard-00001", "shard-00002"}) {
    faults_.Set(&Faults::refused, refused);
    SaveAll(ranks, 1);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1))) << refused;
  }
}

// The store did not answer: the manifest may yet come.
TEST_F(CheckpointerTest, KeepsTheShardsOfAManifestWhoseFateIsNotKnown) {
  auto ranks = OpenRanks(2);
  faults_.Set(&Faults::refused, "manifest.json");
  SaveAll(ranks, 1);
  EXPECT_FALSE(PathOf(1, "shard-00000").empty());
  EXPECT_FALSE(PathOf(1, "shard-00001").empty());
}

TEST_F(CheckpointerTest, RemovesTheShardsOfAManifestThatWasRejected) {
  auto ranks = OpenRanks(2);
  faults_.Set(&Faults::rejected, "manifest.json");
  SaveAll(ranks, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1)));
}

// The answer was to what came before it.
TEST_F(CheckpointerTest, KeepsTheShardsOfAManifestThatWasRejectedAndComes) {
  auto ranks = OpenRanks(2);
  faults_.late_by = 2;
  faults_.Set(&Faults::rejected, "manifest.json");
  SaveAll(ranks, 1);
  ASSERT_EQ(StepOf(ranks[0]->LoadNewest()), 1);
}

TEST_F(CheckpointerTest, SavesAStepOnceMoreInTheSameRound) {
  auto ranks = OpenRanks(2);
  faults_.Set(&Faults::refused, "shard-00001");
  SaveAll(ranks, 1);
  faults_.Set(&Faults::refused, "");
  faults_.Set(&Faults::held, "shard-00001");
  for (int rank = 0; rank < 2; ++rank) ranks[static_cast<std::size_t>(rank)]->Save(At(1, rank, 2), exchange_);
  const int before = exchange_->waits();
  ASSERT_TRUE(Eventually([&] { return faults_.IsHolding() && exchange_->waits() > before; }))
      << "rank 0 waits for the new word of rank 1";
  faults_.Set(&Faults::held, "");
  for (auto& rank : ranks) ASSERT_TRUE(rank->Wait(kLong).ok());
  ASSERT_EQ(StepOf(ranks[0]->LoadNewest()), 1);
  // … and what is complete outlives a further attempt that fails.
  faults_.Set(&Faults::refused, "shard-00001");
  SaveAll(ranks, 1);
  EXPECT_EQ(StepOf(ranks[0]->LoadNewest()), 1);
}

TEST_F(CheckpointerTest, RemovesWhatABrokenAttemptLeftAtAStepThatIsKept) {
  auto ranks = OpenRanks(2);
  ranks[0]->Save(At(2, 0, 2), exchange_);
  ASSERT_TRUE(Eventually([&] { return exchange_->waits() > 0; }));
  ranks[0]->Abandon();
  ASSERT_TRUE(WriteFile(folder_ + "/" + FolderOfStep(2) + "/manifest.json.tmp7", "{").ok());
  ASSERT_TRUE(WriteFile(folder_ + "/" + FolderOfStep(2) + "/notes.txt", "mine").ok());
  ASSERT_TRUE(WriteFile(folder_ + "/history.jsonl.tmp7", "{").ok());
  ASSERT_TRUE(WriteFile(folder_ + "/write-probe-0123456789abcdef", "").ok());
  SaveAll(ranks, 2, /*round=*/2);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/" + FolderOfStep(2) + "/" + ShardName(0, 2, 1)))
      << "the manifest of the first attempt may be late";
  SaveAll(ranks, 3, /*round=*/2);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    if (!entry.is_directory()) left.push_back(entry.path().lexically_relative(folder_).string());
  }
  EXPECT_THAT(left,
              ::testing::UnorderedElementsAre(
                  FolderOfStep(2) + "/notes.txt", FolderOfStep(2) + "/manifest.json",
                  FolderOfStep(2) + "/" + ShardName(0, 2, 2), FolderOfStep(2) + "/" + ShardName(1, 2, 2),
                  FolderOfStep(3) + "/manifest.json", FolderOfStep(3) + "/" + ShardName(0, 2, 2),
                  FolderOfStep(3) + "/" + ShardName(1, 2, 2)));
}

// Steps above its own belong to a job that shares the folder, or to a save that has just begun.
TEST_F(CheckpointerTest, LeavesNewerStepsAndForeignFilesAlone) {
  spec_.keep_last = 1;
  SaveAlone(*Open("uid-0"), 100);
  ASSERT_TRUE(WriteFile(folder_ + "/notes.txt", "mine").ok());
  const auto checkpointer = Open();
  SaveAlone(*checkpointer, 1);
  SaveAlone(*checkpointer, 2);
  EXPECT_THAT(Steps(), ElementsAre(100, 2));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/notes.txt"));
}

// A state of 2 MiB.
Snapshot LargeAt(int64_t step) {
  Snapshot snapshot{.step = step, .round = 1, .tensors = {}};
  snapshot.tensors.push_back({"large", torch::ones({int64_t{1} << 19})});
  return snapshot;
}

TEST_F(CheckpointerTest, SendsNoMoreInASecondThanItMay) {
  spec_.upload_bytes_per_second = int64_t{4} << 20;
  const auto checkpointer = Open();
  checkpointer->Save(LargeAt(1), nullptr);
  std::vector<SaveOutcome> outcomes;
  ASSERT_TRUE(Eventually([&] { return !(outcomes = checkpointer->TakeOutcomes()).empty(); }));
  EXPECT_FALSE(outcomes[0].error) << outcomes[0].error->ToString();
  EXPECT_GE(outcomes[0].seconds, 0.5);
  EXPECT_TRUE(checkpointer->Load(1).ok());
}

// At the end of the training, and in the grace period of a pod.
TEST_F(CheckpointerTest, HoldsNobodyBackWhoWaitsForASave) {
  spec_.upload_bytes_per_second = 1000;
  const auto checkpointer = Open();
  checkpointer->Save(LargeAt(1), nullptr);
  EXPECT_TRUE(checkpointer->Wait(kLong).ok());
  EXPECT_THAT(Steps(), ElementsAre(1));
}

TEST_F(CheckpointerTest, GivesUpASaveThatIsHeldBack) {
  spec_.upload_bytes_per_second = 1000;
  Open()->Save(LargeAt(1), nullptr);
  EXPECT_THAT(Steps(), IsEmpty());
}

class ResumeTest : public CheckpointerTest {
 protected:
  void SetUp() override {
    CheckpointerTest::SetUp();
    const auto former = Open("uid-0");
    SaveAlone(*former, 10);
    SaveAlone(*former, 20);
  }
  Result<std::optional<LoadedState>> Resume(api::ResumeFrom from) {
    spec_.resume = from;
    return Open("uid-1")->Resume();
  }
};

TEST_F(ResumeTest, AutoTakesTheNewestOfAnyJob) { EXPECT_EQ(StepOf(Resume({api::ResumeMode::kAuto})), 20); }

TEST_F(ResumeTest, NeverTakesNone) {
  const auto loaded = Resume({api::ResumeMode::kNever});
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->has_value());
}

TEST_F(ResumeTest, AStepIsTakenExactly) {
  EXPECT_EQ(StepOf(Resume({api::ResumeMode::kStep, 10})), 10);
  const auto absent = Resume({api::ResumeMode::kStep, 15});
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("spec.checkpoint.resume"));
}

TEST_F(ResumeTest, ItsOwnComesFirstWhateverIsAsked) {
  SaveAlone(*Open("uid-1"), 5);
  EXPECT_EQ(StepOf(Resume({api::ResumeMode::kAuto})), 5);
  EXPECT_EQ(StepOf(Resume({api::ResumeMode::kNever})), 5);
  EXPECT_EQ(StepOf(Resume({api::ResumeMode::kStep, 10})), 5);
}

TEST_F(ResumeTest, AutoOfAnEmptyFolderTakesNone) {
  std::filesystem::remove_all(folder_);
  const auto loaded = Resume({api::ResumeMode::kAuto});
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  EXPECT_FALSE(loaded->has_value());
}

}  // namespace
}  // namespace lockstep::checkpoint

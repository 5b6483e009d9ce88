// Which checkpoint is loaded: damaged ones, and spec.checkpoint.resume.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/common/base/file.h"
#include "tests/unit/runtime/checkpoint/checkpointer_fixture.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

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
  ASSERT_EQ(StepOf(Resume(*ranks[0])), 2);
  const auto path = PathOf(2, GetParam().object);
  ASSERT_FALSE(path.empty());
  GetParam().apply(path);
  EXPECT_FALSE(Load(*ranks[0], 2).ok());
  const auto loaded = Resume(*ranks[0]);
  ASSERT_EQ(StepOf(loaded), 1);
  ExpectEqual((*loaded)->tensors, SomeTensors(1));
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

TEST_F(CheckpointerTest, NamesADamagedCheckpointOnce) {
  const auto checkpointer = Open();
  SaveAlone(*checkpointer, 1);
  SaveAlone(*checkpointer, 2);
  const auto path = PathOf(2, "shard-00000");
  FlipLastByte(path);
  ASSERT_EQ(StepOf(Resume(*checkpointer)), 1);
  const auto damaged = checkpointer->TakeDamaged();
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(damaged[0].step, 2);
  EXPECT_NE(damaged[0].reason.find(path.filename().string() + ": "), std::string::npos) << damaged[0].reason;
  EXPECT_TRUE(checkpointer->TakeDamaged().empty());
}

// Without the newest checkpoint the job would lose progress, so it must wait for the store.
TEST_F(CheckpointerTest, AStoreThatIsAwayIsAnErrorAndNotAnAbsence) {
  const auto checkpointer = Open();
  SaveAlone(*checkpointer, 1);
  faults_.get_error = ErrorCode::kUnavailable;
  EXPECT_EQ(Resume(*checkpointer).error().code, ErrorCode::kUnavailable);
  faults_.get_error.reset();
  faults_.list_error = ErrorCode::kUnavailable;
  EXPECT_EQ(Resume(*checkpointer).error().code, ErrorCode::kUnavailable);
}

// A load that fails for another reason does not show that the checkpoint is damaged.
TEST_F(CheckpointerTest, EndsWhereALoadFailsThatFoundNoDamage) {
  const auto checkpointer = Open();
  SaveAlone(*checkpointer, 1);
  SaveAlone(*checkpointer, 2);
  std::vector<int64_t> tried;
  const auto resumed = checkpointer->Resume([&](const Manifest& manifest) -> Result<void> {
    tried.push_back(manifest.step);
    return Error{ErrorCode::kAborted, "the round broke"};
  });
  EXPECT_EQ(resumed.error().code, ErrorCode::kAborted);
  EXPECT_THAT(tried, ::testing::ElementsAre(2));
}

// Its manifest would remove the checkpoint that is read. The save is throttled until it is waited for.
TEST_F(CheckpointerTest, CompletesWhatItStoresBeforeItResumes) {
  spec_.keep_last = 1;
  spec_.upload_bytes_per_second = 1000;
  const auto checkpointer = Open();
  SaveAlone(*checkpointer, 50);
  Snapshot large{.step = 100, .round = 1, .tensors = {}};
  large.tensors.push_back({"large", torch::ones({int64_t{1} << 19})});
  checkpointer->Save(large, nullptr);
  EXPECT_EQ(StepOf(Resume(*checkpointer)), 100);
}

TEST_F(CheckpointerTest, AbandonsWhatDoesNotBecomeCompleteBeforeItResumes) {
  spec_.keep_last = 1;
  auto ranks = OpenRanks(2);
  SaveAll(ranks, 50);
  ranks[0]->Save(At(100, 0, 2), exchange_);  // rank 1 is dead
  const auto resumed = ranks[0]->Resume([](const Manifest&) { return Result<void>(); }, 10ms);
  ASSERT_TRUE(resumed.ok() && resumed->has_value());
  EXPECT_EQ((*resumed)->step, 50);
  ranks[1]->Save(At(100, 1, 2), exchange_);
  EXPECT_TRUE(ranks[1]->Wait(kLong).ok());
  EXPECT_TRUE(ranks[0]->Wait(1ms).ok()) << "nobody waits for that shard any more";
  EXPECT_THAT(Steps(), ::testing::ElementsAre(50));
}

// By the process that led the previous round and still stores what it had begun.
TEST_F(CheckpointerTest, ResumesFromWhatAnotherProcessPutsInThePlaceOfWhatItReads) {
  for (const api::ResumeMode mode : {api::ResumeMode::kAuto, api::ResumeMode::kNever}) {
    std::filesystem::remove_all(folder_);
    spec_.keep_last = 1;
    spec_.resume = {mode};
    SaveAlone(*Open("uid-2"), 40);
    spec_.keep_every_steps = 40;  // the checkpoint of the other job is kept
    const auto leaving = Open();
    SaveAlone(*leaving, 50);
    const auto checkpointer = Open();
    std::vector<NamedTensor> tensors;
    const auto resumed = checkpointer->Resume([&](const Manifest& manifest) {
      if (manifest.step == 50) SaveAlone(*leaving, 100);
      return ReadAll(*checkpointer, manifest, tensors);
    });
    ASSERT_TRUE(resumed.ok()) << resumed.error().ToString();
    ASSERT_TRUE(resumed->has_value());
    EXPECT_EQ((*resumed)->step, 100);
    EXPECT_TRUE(checkpointer->TakeDamaged().empty()) << "it was removed, as it should be";
  }
}

// A shard name without the job.
TEST_F(CheckpointerTest, ReadsTheShardsOfEarlierVersions) {
  const auto checkpointer = Open();
  SaveAlone(*checkpointer, 7);
  const auto manifest = PathOf(7, "manifest.json");
  const auto shard = PathOf(7, "shard-");
  const std::string former = "shard-00000-of-00001.round-1.safetensors";
  std::filesystem::rename(shard, shard.parent_path() / former);
  std::string text = *ReadFile(manifest);
  text.replace(text.find(shard.filename().string()), shard.filename().string().size(), former);
  ASSERT_TRUE(WriteFile(manifest, text).ok());
  const auto loaded = Resume(*checkpointer);
  ASSERT_EQ(StepOf(loaded), 7);
  ExpectEqual((*loaded)->tensors, SomeTensors(7));
}

TEST_F(CheckpointerTest, OverwritesNoShardOfAnotherJob) {
  SaveAlone(*Open("uid-1"), 7);
  faults_.Set(&Faults::refused, "manifest.json");
  const auto other = Open("uid-2");
  other->Save({.step = 7, .round = 1, .tensors = {{"weight", torch::ones({4})}}}, nullptr);
  ASSERT_TRUE(other->Wait(kLong).ok());
  const auto loaded = Load(*other, 7);
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  ExpectEqual(loaded->tensors, SomeTensors(7));
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
    return checkpoint::Resume(*Open("uid-1"));
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

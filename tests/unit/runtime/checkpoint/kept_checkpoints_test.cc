// Which checkpoints are kept, and what becomes of failed saves, by the contents of a checkpointer's store.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/common/base/file.h"
#include "tests/support/eventually.h"
#include "tests/unit/runtime/checkpoint/checkpointer_fixture.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::Eventually;
using ::testing::ElementsAre;

TEST_F(CheckpointerTest, KeepsTheNewest) {
  spec_.keep_last = 2;
  auto ranks = OpenRanks(2);
  for (int64_t step = 1; step <= 4; ++step) SaveAll(ranks, step);
  EXPECT_THAT(Steps(), ElementsAre(4, 3));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(2))) << "its shards go too";
  ASSERT_TRUE(Load(*ranks[0], 3).ok());
}

TEST_F(CheckpointerTest, KeepsTheFirstOfEachIntervalForGood) {
  spec_.keep_last = 1;
  spec_.keep_every_steps = 10;
  const auto checkpointer = Open();
  for (const int64_t step : {3, 6, 11, 14, 20, 29, 45, 46, 47}) SaveAlone(*checkpointer, step);
  EXPECT_THAT(Steps(), ElementsAre(47, 45, 20, 11));
  ASSERT_TRUE(Load(*checkpointer, 11).ok());
}

TEST_F(CheckpointerTest, RemovesTheRestOfAnInterruptedSaveWithTheNextOne) {
  const auto checkpointer = Open();
  const std::string shard = folder_ + "/" + FolderOfStep(1) + "/shard-00001-of-00002.round-1.safetensors";
  std::filesystem::create_directories(std::filesystem::path(shard).parent_path());
  ASSERT_TRUE(WriteFile(shard, "of a rank whose rank 0 was killed").ok());
  SaveAlone(*checkpointer, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1)));
}

// Its manifest may appear after the next one.
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

// On a full disk they would use the space that the next save needs.
TEST_F(CheckpointerTest, RemovesTheShardsOfASaveThatFailed) {
  auto ranks = OpenRanks(3);
  for (const char* refused : {"shard-00000", "shard-00001", "shard-00002"}) {
    faults_.Set(&Faults::refused, refused);
    SaveAll(ranks, 1);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1))) << refused;
  }
}

// Otherwise a store in which no save succeeds would fill up.
TEST_F(CheckpointerTest, RemovesAShardThatCameTooLateWithTheNextSaveThatFails) {
  auto ranks = OpenRanks(2);
  faults_.Set(&Faults::held, "shard-00001");
  for (int rank = 0; rank < 2; ++rank) ranks[static_cast<std::size_t>(rank)]->Save(At(1, rank, 2), exchange_);
  ASSERT_TRUE(Eventually([&] { return faults_.IsHolding() && exchange_->waits() > 0; }));
  ranks[0]->Abandon();
  ASSERT_TRUE(ranks[0]->Wait(kLong).ok());
  faults_.Set(&Faults::held, "");
  ASSERT_TRUE(ranks[1]->Wait(kLong).ok());
  EXPECT_FALSE(PathOf(1, "shard-00001").empty());
  faults_.Set(&Faults::refused, "shard-00001");
  SaveAll(ranks, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1)));
}

// Rank 1 has stored its shard of a save that rank 0 never began.
TEST_F(CheckpointerTest, RemovesTheShardsOfASaveThatWasReplacedWithTheNextThatFails) {
  auto ranks = OpenRanks(2);
  faults_.Set(&Faults::held, "shard-00000");
  ranks[0]->Save(At(1, 0, 2), exchange_);
  ASSERT_TRUE(Eventually([&] { return faults_.IsHolding(); }));
  for (const int64_t step : {2, 3}) {
    ranks[0]->Save(At(step, 0, 2), exchange_);
    if (step == 2) ranks[1]->Save(At(step, 1, 2), exchange_);
  }
  ASSERT_TRUE(ranks[1]->Wait(kLong).ok());
  EXPECT_FALSE(PathOf(2, "shard-00001").empty());
  faults_.Set(&Faults::refused, "shard-00001");
  for (const int64_t step : {1, 3}) ranks[1]->Save(At(step, 1, 2), exchange_);
  faults_.Set(&Faults::held, "");
  for (auto& rank : ranks) ASSERT_TRUE(rank->Wait(kLong).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(2)));
}

// The store did not answer: the manifest may still appear.
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

// The answer belonged to the request before it.
TEST_F(CheckpointerTest, KeepsTheShardsOfAManifestThatWasRejectedAndComes) {
  auto ranks = OpenRanks(2);
  faults_.late_by = 2;
  faults_.Set(&Faults::rejected, "manifest.json");
  SaveAll(ranks, 1);
  ASSERT_EQ(StepOf(Resume(*ranks[0])), 1);
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
  ASSERT_EQ(StepOf(Resume(*ranks[0])), 1);
  // … and a complete checkpoint survives a further attempt that fails.
  faults_.Set(&Faults::refused, "shard-00001");
  SaveAll(ranks, 1);
  EXPECT_EQ(StepOf(Resume(*ranks[0])), 1);
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
  const std::string mine = folder_ + "/" + FolderOfStep(2) + "/" + ShardName(0, {"uid-1", 2, 1});
  const std::string of_another_process =
      folder_ + "/" + FolderOfStep(2) + "/" + ShardName(0, {"uid-1", 3, 1});
  ASSERT_TRUE(WriteFile(of_another_process, "").ok());
  SaveAll(ranks, 2, /*round=*/2);
  EXPECT_FALSE(std::filesystem::exists(mine)) << "this process knows that it is no checkpoint";
  EXPECT_TRUE(std::filesystem::exists(of_another_process)) << "its manifest may be late";
  SaveAll(ranks, 3, /*round=*/2);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    if (!entry.is_directory()) left.push_back(entry.path().lexically_relative(folder_).string());
  }
  EXPECT_THAT(left, ::testing::UnorderedElementsAre(FolderOfStep(2) + "/notes.txt",
                                                    FolderOfStep(2) + "/manifest.json",
                                                    FolderOfStep(2) + "/" + ShardName(0, {"uid-1", 2, 2}),
                                                    FolderOfStep(2) + "/" + ShardName(1, {"uid-1", 2, 2}),
                                                    FolderOfStep(3) + "/manifest.json",
                                                    FolderOfStep(3) + "/" + ShardName(0, {"uid-1", 2, 2}),
                                                    FolderOfStep(3) + "/" + ShardName(1, {"uid-1", 2, 2})));
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

}  // namespace
}  // namespace lockstep::checkpoint

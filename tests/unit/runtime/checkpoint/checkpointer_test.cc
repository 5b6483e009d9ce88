// Saves by one to three ranks, and reading them back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/common/base/file.h"
#include "tests/support/eventually.h"
#include "tests/support/limited_memory.h"
#include "tests/unit/runtime/checkpoint/checkpointer_fixture.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::Eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CheckpointerTest, LoadsWhatAnyNumberOfRanksSaved) {
  for (int world = 1; world <= 3; ++world) {
    auto ranks = OpenRanks(world);
    SaveAll(ranks, 10 * world);
    const auto outcomes = ranks[0]->TakeOutcomes();
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_EQ(outcomes[0].step, 10 * world);
    EXPECT_EQ(outcomes[0].uri, spec_.uri + "/" + FolderOfStep(10 * world));
    EXPECT_GT(outcomes[0].bytes, 0);
    const auto loaded = Load(*Open(), 10 * world);
    ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
    EXPECT_EQ(loaded->manifest.world, world);
    EXPECT_EQ(loaded->manifest.job_uid, "uid-1");
    EXPECT_EQ(loaded->manifest.training, (Json{{"seed", 7}}));
    ExpectEqual(loaded->tensors, SomeTensors(10 * world));
  }
}

TEST_F(CheckpointerTest, IsReadByTheProgramOfTheReference) {
  auto ranks = OpenRanks(2);
  SaveAll(ranks, 120);
  const std::string page = *ReadFile(LOCKSTEP_SOURCE_DIR "/docs/reference/file-formats.md");
  const std::size_t begin = page.find("```python\n") + 10;
  ASSERT_TRUE(WriteFile(folder_ + "/read.py", page.substr(begin, page.find("```", begin) - begin)).ok());
  const std::string run =
      "python3 " + folder_ + "/read.py " + folder_ + "/" + FolderOfStep(120) + " >" + folder_ + "/output";
  ASSERT_EQ(std::system(run.c_str()), 0);
  const std::string output = *ReadFile(folder_ + "/output");
  for (const NamedTensor& named : SomeTensors(120)) EXPECT_THAT(output, HasSubstr(named.name + " "));
  EXPECT_THAT(output, HasSubstr("model/transposed F32 [7, 5] "));
}

TEST_F(CheckpointerTest, NamesInAManifestOnlyWhatIsThere) {
  auto checkpointer = Open();
  faults_.unseen_reads = 3;  // it becomes visible a moment after the store has accepted it
  SaveAlone(*checkpointer, 1);
  EXPECT_EQ(faults_.unseen_reads, 0);

  faults_.unseen_reads = 1'000'000;
  checkpointer->Save(At(2), nullptr);
  EXPECT_TRUE(checkpointer->Wait(kLong).ok());
  const auto outcomes = checkpointer->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  ASSERT_TRUE(outcomes.front().error);
  EXPECT_THAT(outcomes.front().error->message,
              HasSubstr("the store accepted the object, but does not have it"));
  faults_.unseen_reads = 0;
  EXPECT_EQ(StepOf(Resume(*checkpointer)), 1);
}

TEST_F(CheckpointerTest, DividesTheBytesOverTheRanks) {
  auto ranks = OpenRanks(3);
  for (int rank = 0; rank < 3; ++rank) {
    Snapshot snapshot{.step = 1, .round = 1, .rank = rank, .world = 3, .tensors = {}};
    for (int i = 0; i < 30; ++i) snapshot.tensors.push_back({std::to_string(i), torch::ones({1000})});
    ranks[static_cast<std::size_t>(rank)]->Save(snapshot, exchange_);
  }
  ASSERT_TRUE(ranks[0]->Wait(kLong).ok());
  const auto loaded = Load(*Open(), 1);
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
  EXPECT_TRUE(at::equal(Load(*checkpointer, 1)->tensors.at(0).tensor, torch::ones({4})));
}

TEST_F(CheckpointerTest, RestoresEvaluationsOfTheSameJobAndRuleOnly) {
  const Json patient = {{"earlyStop", {{"patience", 2}}}};
  const auto checkpointer = Open("uid-1", patient);
  Snapshot snapshot = At(7);
  snapshot.evaluations = {.step = 5, .newest = 0.5, .best = 0.875, .without_improvement = 3};
  checkpointer->Save(snapshot, nullptr);
  ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  const auto resumed_by = [&](const std::string& uid, const Json& training) {
    return std::move(Resume(*Open(uid, training))).value()->manifest.evaluations;
  };
  const EvaluationRecord record = resumed_by("uid-1", patient);
  EXPECT_EQ(record.step, 5);
  EXPECT_EQ(record.newest, 0.5);
  EXPECT_EQ(record.best, 0.875);
  EXPECT_EQ(record.without_improvement, 3);
  EXPECT_EQ(resumed_by("uid-2", patient).step, -1);
  EXPECT_EQ(resumed_by("uid-1", {{"earlyStop", {{"patience", 3}}}}).step, -1);
}

// The history of a process that restored `first` steps and made those up to the snapshot's.
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
  save(*second, 3, 4);  // for example because the checkpoint of step 5 was damaged
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
    EXPECT_EQ(Load(*checkpointer, 2).error().code, ErrorCode::kNotFound);
    EXPECT_THAT(Steps(), ElementsAre(1));
    EXPECT_EQ(StepOf(Resume(*checkpointer)), 1);
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
  const auto loaded = Resume(*ranks[0]);
  ASSERT_EQ(StepOf(loaded), 1);
  ExpectEqual((*loaded)->tensors, SomeTensors(1));
}

TEST_F(CheckpointerTest, TheNextRoundSavesTheAbandonedStepAgain) {
  auto ranks = OpenRanks(2);
  ranks[0]->Save(At(2, 0, 2), exchange_);
  ASSERT_TRUE(Eventually([&] { return exchange_->waits() > 0; }));
  ranks[0]->Abandon();
  SaveAlone(*ranks[0], 2, /*round=*/2);
  const auto loaded = Load(*ranks[0], 2);
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  EXPECT_EQ(loaded->manifest.round, 2);
  ExpectEqual(loaded->tensors, SomeTensors(2));
}

// Otherwise a disk that has room for one more checkpoint than are kept would stay full.
TEST_F(CheckpointerTest, ARepeatedSaveReplacesTheShardsOfTheOneBefore) {
  auto ranks = OpenRanks(2);
  SaveAll(ranks, 2);
  (void)ranks[0]->TakeOutcomes();
  ASSERT_FALSE(PathOf(2, "shard-00001-of-00002").empty());
  SaveAlone(*ranks[0], 2);  // as at the end, when the other rank has left
  EXPECT_TRUE(PathOf(2, "shard-00000-of-00002").empty());
  EXPECT_TRUE(PathOf(2, "shard-00001-of-00002").empty());
  const auto loaded = Load(*ranks[0], 2);
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  ExpectEqual(loaded->tensors, SomeTensors(2));
}

TEST_F(CheckpointerTest, EndsWithoutWaitingForAShardThatNeverComes) {
  auto checkpointer = Open();
  checkpointer->Save(At(2, 0, 2), exchange_);
  ASSERT_TRUE(Eventually([&] { return exchange_->waits() > 0; }));
  const auto start = std::chrono::steady_clock::now();
  checkpointer.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 120s) << "the limit for a shard ended it";
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
  ranks[1]->Save(At(3, 1, 2), exchange_);  // replaces step 2, which rank 0 begins anyway
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
  EXPECT_EQ(outcomes[1].error->code, ErrorCode::kCancelled);
  EXPECT_FALSE(outcomes[2].error);
  EXPECT_THAT(Steps(), ElementsAre(3, 1));
}

// A state of 2 MiB.
Snapshot LargeAt(int64_t step) {
  Snapshot snapshot{.step = step, .round = 1, .tensors = {}};
  snapshot.tensors.push_back({"large", torch::ones({int64_t{1} << 19})});
  return snapshot;
}

// One is being written, one waits.
TEST_F(CheckpointerTest, HoldsTwoSharesAtMost) {
  lockstep::testing::LimitedMemory memory;
  const auto checkpointer = Open();
  std::vector<Snapshot> snapshots;
  for (int64_t step = 1; step <= 4; ++step) snapshots.push_back(LargeAt(step));
  // Too large for the memory of the waiting one.
  snapshots[3].tensors.push_back({"more", snapshots[0].tensors[0].tensor});
  const int before = memory.most_pieces;
  faults_.Set(&Faults::held, "shard-");
  checkpointer->Save(snapshots[0], nullptr);
  ASSERT_TRUE(Eventually([&] { return faults_.IsHolding(); }));
  for (const std::size_t i : {1, 2, 3}) checkpointer->Save(snapshots[i], nullptr);
  faults_.Set(&Faults::held, "");
  ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  EXPECT_EQ(memory.most_pieces, before + 2);
  EXPECT_THAT(Steps(), ElementsAre(4, 1));
  ExpectEqual(Load(*checkpointer, 4)->tensors, snapshots[3].tensors);
}

TEST_F(CheckpointerTest, FreesWhatItForgets) {
  const Snapshot snapshot = LargeAt(1);
  lockstep::testing::LimitedMemory memory;
  const auto checkpointer = Open();
  checkpointer->Copy(snapshot, nullptr);
  EXPECT_EQ(memory.pieces(), 1);
  checkpointer->Forget();
  EXPECT_EQ(memory.pieces(), 0);
  EXPECT_TRUE(checkpointer->Wait(kLong).ok());
  EXPECT_THAT(Steps(), IsEmpty());
}

TEST_F(CheckpointerTest, SendsNoMoreInASecondThanItMay) {
  spec_.upload_bytes_per_second = int64_t{4} << 20;
  const auto checkpointer = Open();
  checkpointer->Save(LargeAt(1), nullptr);
  std::vector<SaveOutcome> outcomes;
  ASSERT_TRUE(Eventually([&] { return !(outcomes = checkpointer->TakeOutcomes()).empty(); }));
  EXPECT_FALSE(outcomes[0].error) << outcomes[0].error->ToString();
  EXPECT_GE(outcomes[0].seconds, 0.5);
  EXPECT_TRUE(Load(*checkpointer, 1).ok());
}

// At the end of the training, and in the grace period of a pod.
TEST_F(CheckpointerTest, DoesNotThrottleASaveThatIsWaitedFor) {
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

}  // namespace
}  // namespace lockstep::checkpoint

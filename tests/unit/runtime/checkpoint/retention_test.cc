#include "runtime/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/manifest.h"
#include "tests/unit/runtime/checkpoint/aged_store.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::AgedStore;
using ::testing::UnorderedElementsAre;

std::string Shard(int64_t step, int64_t round) {
  return FolderOfStep(step) + "/" + ShardName(1, {"uid-1", 2, round});
}

constexpr Kept kTwentiethOfRoundEight{.newest = 20, .round = 8, .last = 3, .every_steps = {}};

TEST(RemoveWhatIsNotKept, AbortsUploadsThatNoProcessCompletes) {
  AgedStore store;
  RetentionMemory memory;
  const std::string again = FolderOfStep(20) + "/shard-00001-of-00002.round-8.again-1.safetensors";
  store.uploads = {Shard(10, 8), Shard(10, 7), Shard(20, 7), Shard(20, 80), Shard(20, 8),
                   again,        Shard(30, 8), Shard(30, 7), "data.bin",    "step-10/x"};
  RemoveWhatIsNotKept(store, kTwentiethOfRoundEight, memory);
  EXPECT_THAT(store.uploads,
              UnorderedElementsAre(Shard(20, 8), again, Shard(30, 8), Shard(30, 7), "data.bin", "step-10/x"))
      << "a rank that is ahead stores the newest once more, or the next; others are not ours";
}

std::string Shard(int64_t step, int rank, int world, int attempt = 0) {
  return FolderOfStep(step) + "/" + ShardName(rank, {"uid-1", world, 8, attempt});
}

// Lost saves of steps 20 and 30 in round 8.
RetentionMemory WithTwoLostSaves() {
  RetentionMemory memory;
  memory.lost = {{20, {"uid-1", 2, 8, 0}}, {30, {"uid-1", 2, 8, 1}}};
  return memory;
}

TEST(RemoveLostSaves, RemovesNothingButTheirShardsAndUploads) {
  AgedStore store;
  RetentionMemory memory = WithTwoLostSaves();
  const std::vector<std::string> others = {FolderOfStep(20) + "/" + ShardName(0, {"uid-2", 2, 8}),
                                           Shard(20, 7),
                                           Shard(20, 0, 1),
                                           Shard(20, 0, 2, 1),
                                           Shard(30, 0, 2),
                                           Shard(40, 0, 2),
                                           FolderOfStep(20) + "/manifest.json",
                                           FolderOfStep(20) + "/notes.txt"};
  for (const std::string& name : others) ASSERT_TRUE(store.Put(name, "").ok());
  for (const std::string& name : {Shard(20, 0, 2), Shard(20, 1, 2), Shard(30, 1, 2, 1)})
    ASSERT_TRUE(store.Put(name, "").ok());
  store.uploads = {Shard(20, 1, 2), Shard(30, 1, 2), Shard(20, 7)};
  RemoveLostSaves(store, memory, {});
  EXPECT_THAT(store.Names(), ::testing::UnorderedElementsAreArray(others));
  EXPECT_THAT(store.uploads, UnorderedElementsAre(Shard(30, 1, 2), Shard(20, 7)));
}

TEST(RemoveLostSaves, RemovesAgainWhatComesLate) {
  AgedStore store;
  RetentionMemory memory = WithTwoLostSaves();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(store.Put(Shard(20, i, 2), "").ok());
    RemoveLostSaves(store, memory, {});
    EXPECT_THAT(store.Names(), ::testing::IsEmpty());
  }
}

TEST(RemoveLostSaves, EndsWhereItIsToStop) {
  AgedStore store;
  RetentionMemory memory = WithTwoLostSaves();
  ASSERT_TRUE(store.Put(Shard(20, 1, 2), "").ok());
  std::stop_source stop;
  stop.request_stop();
  RemoveLostSaves(store, memory, stop.get_token());
  EXPECT_THAT(store.Names(), UnorderedElementsAre(Shard(20, 1, 2)));
}

// Everything that is older and has no manifest is removed with the next checkpoint anyway.
TEST(RemoveWhatIsNotKept, ForgetsLostSavesOfEarlierSteps) {
  AgedStore store;
  RetentionMemory memory = WithTwoLostSaves();
  RemoveWhatIsNotKept(store, {.newest = 30, .round = 8, .last = 3, .every_steps = {}}, memory);
  ASSERT_EQ(memory.lost.size(), 1U);
  EXPECT_EQ(memory.lost[0].step, 30);
}

TEST(RemoveWhatIsNotKept, LeavesUploadsToAStoreThatRefusesToAbort) {
  for (const ErrorCode final : {ErrorCode::kForbidden, ErrorCode::kUnsupported}) {
    AgedStore store;
    RetentionMemory memory;
    store.uploads_error = Error{ErrorCode::kUnavailable, "away"};
    for (int i = 0; i < 2; ++i) RemoveWhatIsNotKept(store, kTwentiethOfRoundEight, memory);
    EXPECT_EQ(store.asked_to_abort, 2) << "another time may do it";
    store.uploads_error = Error{final, "no"};
    for (int i = 0; i < 2; ++i) RemoveWhatIsNotKept(store, kTwentiethOfRoundEight, memory);
    EXPECT_EQ(store.asked_to_abort, 3);
  }
}

}  // namespace
}  // namespace lockstep::checkpoint

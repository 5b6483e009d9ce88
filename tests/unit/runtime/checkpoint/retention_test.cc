#include "runtime/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/manifest.h"
#include "tests/unit/runtime/checkpoint/aged_store.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::AgedStore;
using ::testing::UnorderedElementsAre;

std::string Shard(int64_t step, int64_t round) { return FolderOfStep(step) + "/" + ShardName(1, 2, round); }

constexpr Kept kTwentiethOfRoundEight{.newest = 20, .round = 8, .last = 3, .every_steps = {}};

TEST(RemoveWhatIsNotKept, AbortsUploadsThatNobodyCompletes) {
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

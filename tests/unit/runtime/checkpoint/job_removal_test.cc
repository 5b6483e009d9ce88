#include "runtime/checkpoint/job_removal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/ownership.h"
#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/time_text.h"
#include "tests/unit/runtime/checkpoint/aged_store.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::AgedStore;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobsCheckpoints : public ::testing::Test {
 protected:
  void Put(const std::string& name, const std::string& content = "x") {
    ASSERT_TRUE(store_.Put(name, content).ok());
  }
  void PutShard(int64_t step, int64_t round) {
    Put(FolderOfStep(step) + "/" + ShardName(0, {"uid-1", 1, round}));
  }
  void Save(int64_t step, const std::string& uid) {
    PutShard(step, 1);
    const Manifest manifest{.job_uid = uid,
                            .step = step,
                            .shards = {{.name = ShardName(0, {"uid-1", 1, 1}),
                                        .bytes = 1,
                                        .sha256 = std::string(64, '0'),
                                        .tensors = {}}}};
    store_.now += 1s;
    Put(FolderOfStep(step) + "/manifest.json", EncodeManifest(manifest));
  }
  void PutMarker(const std::string& uid) {
    Put(MarkerOf(uid), DumpJson({{"jobUid", uid}, {"time", FormatMicroTime(store_.now)}}));
  }
  AgedStore store_;
};

TEST_F(JobsCheckpoints, RemovesUnownedObjectsWhereNoOtherJobStores) {
  Save(10, "mine");
  Save(20, "mine");
  PutShard(30, 1);  // an interrupted save
  Put("history.jsonl");
  Put("history.jsonl.tmp");
  Put("write-probe-1");
  PutMarker("mine");
  Put("notes.txt");  // not an object of ours
  const auto removal = RemoveAllOfJob(store_, "mine");
  ASSERT_TRUE(removal.ok());
  EXPECT_EQ(removal->checkpoints, 2);
  EXPECT_EQ(removal->objects, 9);
  EXPECT_THAT(removal->left, IsEmpty());
  EXPECT_THAT(store_.Names(), ElementsAre("notes.txt"));
}

TEST_F(JobsCheckpoints, GoAloneWhereAnotherJobHasCheckpoints) {
  Save(10, "mine");
  Save(20, "another");
  PutShard(30, 1);
  Put("history.jsonl");
  const auto removal = RemoveAllOfJob(store_, "mine");
  ASSERT_TRUE(removal.ok());
  EXPECT_EQ(removal->checkpoints, 1);
  EXPECT_THAT(removal->left, ElementsAre(HasSubstr("step 30 has no manifest")));
  EXPECT_THAT(store_.Names(), ElementsAre("history.jsonl", FolderOfStep(20) + "/manifest.json",
                                          FolderOfStep(20) + "/" + ShardName(0, {"uid-1", 1, 1}),
                                          FolderOfStep(30) + "/" + ShardName(0, {"uid-1", 1, 1})));
}

TEST_F(JobsCheckpoints, StayWhereAnotherJobWritesIntoTheSameFolder) {
  Save(10, "mine");
  Save(20, "mine");
  PutMarker("another");
  store_.now += 1s;
  PutShard(20, 1);  // over that of this job, which has the same name
  const auto removal = RemoveAllOfJob(store_, "mine");
  ASSERT_TRUE(removal.ok());
  EXPECT_THAT(removal->left, ElementsAre(HasSubstr("step 20")));
  EXPECT_THAT(store_.Names(), ElementsAre("owners/another.json", FolderOfStep(20) + "/manifest.json",
                                          FolderOfStep(20) + "/" + ShardName(0, {"uid-1", 1, 1})));
}

TEST_F(JobsCheckpoints, RemovesTheUploadsOfItsStepsWhereNoOtherJobStores) {
  Save(10, "mine");
  store_.uploads = {FolderOfStep(10) + "/" + ShardName(0, {"uid-1", 1, 1}),
                    FolderOfStep(20) + "/" + ShardName(0, {"uid-1", 1, 1}), "notes.txt"};
  ASSERT_TRUE(RemoveAllOfJob(store_, "mine").ok());
  EXPECT_THAT(store_.uploads, ElementsAre("notes.txt"));

  Save(10, "mine");
  store_.uploads = {FolderOfStep(20) + "/" + ShardName(0, {"uid-1", 1, 1})};
  PutMarker("another");
  ASSERT_TRUE(RemoveAllOfJob(store_, "mine").ok());
  EXPECT_THAT(store_.uploads, ::testing::SizeIs(1)) << "it may be the other's, which runs";
}

TEST_F(JobsCheckpoints, GoWhereTheStoreAbortsNoUploads) {
  Save(10, "mine");
  store_.uploads_error = Error{ErrorCode::kForbidden, "no right to abort uploads"};
  const auto removal = RemoveAllOfJob(store_, "mine");
  ASSERT_TRUE(removal.ok());
  EXPECT_THAT(removal->left, ElementsAre("no right to abort uploads"));
  EXPECT_THAT(store_.Names(), IsEmpty());

  store_.uploads_error = Error{ErrorCode::kUnavailable, "the store is away"};
  EXPECT_FALSE(RemoveAllOfJob(store_, "mine").ok()) << "another try may abort them";
}

TEST_F(JobsCheckpoints, AreNotGuessedFromAManifestThatCannotBeRead) {
  Put(FolderOfStep(10) + "/manifest.json", "{");
  Put("history.jsonl");
  const auto removal = RemoveAllOfJob(store_, "mine");
  ASSERT_TRUE(removal.ok());
  EXPECT_THAT(removal->left, ElementsAre(HasSubstr("step 10")));
  EXPECT_EQ(store_.Names().size(), 2U);
}

// Wherever the store fails, a second call removes the rest, also with another job at the same location.
TEST_F(JobsCheckpoints, GoTheSecondTimeWhereTheFirstWasBrokenOff) {
  for (int deletions = 0; deletions < 5; ++deletions) {
    Save(10, "mine");
    Save(20, "mine");
    Save(30, "another");
    PutMarker("mine");
    store_.deletions_left = deletions;
    ASSERT_FALSE(RemoveAllOfJob(store_, "mine").ok());
    store_.deletions_left = 1000;
    ASSERT_TRUE(RemoveAllOfJob(store_, "mine").ok());
    EXPECT_THAT(store_.Names(), ElementsAre(FolderOfStep(30) + "/manifest.json",
                                            FolderOfStep(30) + "/" + ShardName(0, {"uid-1", 1, 1})))
        << deletions;
  }
}

TEST_F(JobsCheckpoints, AreThoseOfAJobThatRunsWhileItsMarkerIsYoung) {
  EXPECT_FALSE(*SeemsToRun(store_, "mine", store_.now));
  PutMarker("mine");
  EXPECT_TRUE(*SeemsToRun(store_, "mine", store_.now + kLease - 1s));
  EXPECT_FALSE(*SeemsToRun(store_, "mine", store_.now + kLease));
  EXPECT_FALSE(*SeemsToRun(store_, "another", store_.now));
}

}  // namespace
}  // namespace lockstep::checkpoint

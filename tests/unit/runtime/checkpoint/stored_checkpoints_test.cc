#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/checkpoint/open_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>

#include "runtime/checkpoint/sha256.h"
#include "runtime/common/base/file.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ShardEntry EntryOf(int rank, const std::string& content, const SafetensorsHeader& header) {
  return {ShardName(rank, {"uid-1", 2, 1}), static_cast<int64_t>(content.size()), Sha256(content),
          PlacesIn(header)};
}

// One tensor of `bytes` bytes.
std::string ShardOf(const std::string& tensor, std::size_t bytes) {
  std::string content =
      EncodeHeader({{tensor, "U8", {static_cast<int64_t>(bytes)}, 0, bytes}}, {{"format", "pt"}});
  for (std::size_t i = 0; i < bytes; ++i) content += static_cast<char>(i * 31 + i / 4093);
  return content;
}

// Records what is deleted, and fails when the test says so.
class RecordingStore final : public ObjectStore {
 public:
  explicit RecordingStore(std::unique_ptr<ObjectStore> store) : store_(std::move(store)) {}
  Result<void> Put(const std::string& name, std::string_view content) override {
    return store_->Put(name, content);
  }
  Result<std::string> Get(const std::string& name) override { return store_->Get(name); }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    longest_read = std::max(longest_read, target.size());
    return store_->Read(name, offset, target);
  }
  Result<std::vector<ObjectInfo>> List() override { return store_->List(); }
  Result<void> Delete(const std::string& name) override {
    if (!refused.empty() && name.find(refused) != std::string::npos)
      return Error{ErrorCode::kForbidden, "refused"};
    deleted.push_back(name);
    return store_->Delete(name);
  }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return store_->UriOf(name); }

  std::vector<std::string> deleted;
  std::string refused;
  std::size_t longest_read = 0;

 private:
  const std::unique_ptr<ObjectStore> store_;
};

class StoredCheckpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    store_ = std::make_unique<RecordingStore>(std::move(OpenForCommand("file://" + folder_)).value());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Put(const std::string& name, const std::string& content) {
    ASSERT_TRUE(store_->Put(name, content).ok());
  }
  // Two shards; the second has `bytes` bytes of data.
  Manifest Save(int64_t step, std::size_t bytes = 100) {
    Manifest manifest{.job_uid = "uid-1", .job_name = "mnist", .step = step, .world = 2, .shards = {}};
    const std::string contents[] = {ShardOf("a", 10), ShardOf("b", bytes)};
    for (int rank = 0; rank < 2; ++rank) {
      const std::string& content = contents[rank];
      manifest.shards.push_back(EntryOf(rank, content, *ParseHeader(content, content.size())));
      Put(ObjectOf(step, manifest.shards.back()), content);
    }
    Put(FolderOfStep(step) + "/manifest.json", EncodeManifest(manifest));
    return manifest;
  }
  StoredStep Find(int64_t step) {
    const auto steps = ListSteps(*store_);
    for (const StoredStep& stored : *steps) {
      if (stored.step == step) return stored;
    }
    return {};
  }
  // The bytes that StreamShard passes on.
  Result<std::string> Stream(const StoredStep& stored, const ShardEntry& shard) {
    std::string content;
    LOCKSTEP_TRY(StreamShard(*store_, stored, shard, [&](int64_t offset, std::string_view piece) {
      EXPECT_EQ(offset, static_cast<int64_t>(content.size()));
      content += piece;
      return Result<void>();
    }));
    return content;
  }

  std::string folder_ = ::testing::TempDir() + "lockstep-stored-XXXXXX";
  std::unique_ptr<RecordingStore> store_;
};

TEST_F(StoredCheckpoints, AreListedNewestFirstWithTheManifestInFront) {
  Save(9);
  Save(100);
  Put(FolderOfStep(50) + "/shard-00000-of-00001.round-1.safetensors", "a save that was broken off");
  Put(FolderOfStep(100) + "/a-file", "which sorts before the manifest");
  Put("history.jsonl", "");
  Put("step-7/manifest.json", "no folder of ours");
  const auto steps = ListSteps(*store_);
  ASSERT_TRUE(steps.ok());
  std::vector<int64_t> numbers;
  for (const StoredStep& stored : *steps) numbers.push_back(stored.step);
  EXPECT_THAT(numbers, ElementsAre(100, 50, 9));
  EXPECT_TRUE(steps->at(0).has_manifest);
  EXPECT_FALSE(steps->at(1).has_manifest);
  ASSERT_EQ(steps->at(0).objects.size(), 4U);
  EXPECT_EQ(steps->at(0).objects[0].name, FolderOfStep(100) + "/manifest.json");
  EXPECT_GT(steps->at(0).objects[0].bytes, 0);
}

TEST_F(StoredCheckpoints, NameWhatAListingLacks) {
  const Manifest manifest = Save(1);
  EXPECT_THAT(MissingFrom(Find(1), manifest), IsEmpty());
  std::filesystem::resize_file(folder_ + "/" + ObjectOf(1, manifest.shards[1]), 7);
  ASSERT_TRUE(store_->Delete(ObjectOf(1, manifest.shards[0])).ok());
  const std::string second = manifest.shards[1].name + " has 7 bytes, not ";
  EXPECT_THAT(MissingFrom(Find(1), manifest),
              ElementsAre(manifest.shards[0].name + " is missing", HasSubstr(second)));
}

TEST_F(StoredCheckpoints, AManifestOfAnotherStepIsDamage) {
  Save(1);
  Put(FolderOfStep(2) + "/manifest.json", *store_->Get(FolderOfStep(1) + "/manifest.json"));
  EXPECT_EQ(ReadManifest(*store_, 1)->job_name, "mnist");
  const auto other = ReadManifest(*store_, 2);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kDataLoss);
  EXPECT_EQ(ReadManifest(*store_, 3).error().code, ErrorCode::kNotFound);
}

TEST_F(StoredCheckpoints, AShardIsReadInPiecesOfBoundedSize) {
  constexpr std::size_t kLarge = (std::size_t{20} << 20) + 5;
  const Manifest manifest = Save(1, kLarge);
  const auto streamed = Stream(Find(1), manifest.shards[1]);
  ASSERT_TRUE(streamed.ok()) << streamed.error().ToString();
  EXPECT_TRUE(*streamed == ShardOf("b", kLarge));
  EXPECT_LE(store_->longest_read, std::size_t{8} << 20);
}

TEST_F(StoredCheckpoints, AnotherPlaceInTheManifestIsDamageBeforeAnythingIsGivenAway) {
  const Manifest manifest = Save(1);
  const auto given = [&](const std::function<void(TensorPlace&)>& change) {
    ShardEntry shard = manifest.shards[1];
    change(shard.tensors.at(0));
    int pieces = 0;
    const auto streamed = StreamShard(*store_, Find(1), shard, [&](int64_t, std::string_view) {
      ++pieces;
      return Result<void>();
    });
    EXPECT_FALSE(streamed.ok());
    EXPECT_EQ(streamed.error().code, ErrorCode::kDataLoss);
    EXPECT_THAT(streamed.error().message, HasSubstr(shard.name));
    return pieces;
  };
  EXPECT_EQ(given([](TensorPlace& tensor) { --tensor.offset; }), 0);
  EXPECT_EQ(given([](TensorPlace& tensor) { --tensor.bytes; }), 0);
  EXPECT_EQ(given([](TensorPlace& tensor) { tensor.name = "c"; }), 0);
  EXPECT_EQ(given([](TensorPlace& tensor) { tensor.dtype = "I8"; }), 0);
  EXPECT_EQ(given([](TensorPlace& tensor) { tensor.shape = {10, 10}; }), 0);
}

TEST_F(StoredCheckpoints, ATakerThatFailsEndsTheReading) {
  const Manifest manifest = Save(1);
  const auto streamed = StreamShard(*store_, Find(1), manifest.shards[1], [](int64_t, std::string_view) {
    return Result<void>(Error{ErrorCode::kInvalidArgument, "the disk is full"});
  });
  EXPECT_EQ(streamed.error().code, ErrorCode::kInvalidArgument);
}

// Any change of a stored shard is detected as damage of that shard, and no other object is read.
TEST_F(StoredCheckpoints, AnyChangeOfAShardIsFound) {
  const Manifest manifest = Save(1);
  const ShardEntry& shard = manifest.shards[1];
  const std::string name = ObjectOf(1, shard);
  const std::string sound = *store_->Get(name);
  EXPECT_TRUE(rc::check("a changed, cut or longer shard is damage", [&] {
    std::string content = sound;
    const int changes = *rc::gen::inRange(1, 4);
    for (int i = 0; i < changes; ++i)
      content[*rc::gen::inRange<std::size_t>(0, content.size())] =
          static_cast<char>(*rc::gen::inRange(0, 256));
    if (*rc::gen::inRange(0, 3) == 0) content.resize(*rc::gen::inRange<std::size_t>(0, content.size() + 20));
    RC_PRE(content != sound);
    RC_ASSERT(WriteFile(folder_ + "/" + name, content).ok());
    const auto streamed = Stream(Find(1), shard);
    RC_ASSERT(!streamed.ok());
    RC_ASSERT(streamed.error().code == ErrorCode::kDataLoss);
    RC_ASSERT(streamed.error().message.find(shard.name) != std::string::npos);
  }));
}

// For any manifest: if it is accepted, only objects of its folder are read.
TEST_F(StoredCheckpoints, AnyChangeOfAManifestIsFoundOrHarmless) {
  Save(1);
  const std::string name = FolderOfStep(1) + "/manifest.json";
  const std::string sound = *store_->Get(name);
  EXPECT_TRUE(rc::check("a changed manifest is damage, or its shards are those stored", [&] {
    std::string content = sound;
    const int changes = *rc::gen::inRange(1, 4);
    for (int i = 0; i < changes; ++i)
      content[*rc::gen::inRange<std::size_t>(0, content.size())] =
          *rc::gen::elementOf(std::string("0123456789./\\\"-,{}[]:e \n\0", 26));
    RC_ASSERT(WriteFile(folder_ + "/" + name, content).ok());
    const auto manifest = ReadManifest(*store_, 1);
    if (!manifest.ok()) return RC_ASSERT(IsDamage(manifest.error()));
    for (const ShardEntry& shard : manifest->shards) {
      const auto streamed = Stream(Find(1), shard);
      RC_ASSERT((streamed.ok() || IsDamage(streamed.error())));
      if (streamed.ok()) RC_ASSERT(Sha256(*streamed) == shard.sha256);
    }
  }));
}

TEST_F(StoredCheckpoints, AreRemovedWithTheManifestFirst) {
  const Manifest manifest = Save(1);
  Save(2);
  ASSERT_TRUE(RemoveStep(*store_, Find(1)).ok());
  EXPECT_THAT(store_->deleted, ElementsAre(FolderOfStep(1) + "/manifest.json",
                                           ObjectOf(1, manifest.shards[0]), ObjectOf(1, manifest.shards[1])));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + FolderOfStep(1)));
  EXPECT_EQ(Find(2).objects.size(), 3U);
}

TEST_F(StoredCheckpoints, StayWholeWhereTheManifestCannotBeRemoved) {
  const Manifest manifest = Save(1);
  store_->refused = "manifest";
  const auto removed = RemoveStep(*store_, Find(1));
  ASSERT_FALSE(removed.ok());
  EXPECT_THAT(removed.error().message, HasSubstr("manifest.json"));
  EXPECT_THAT(MissingFrom(Find(1), manifest), IsEmpty());
}

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256Sum sum;
  sum.Add("a");
  sum.Add("");
  sum.Add("bc");
  EXPECT_EQ(sum.Finish(), Sha256("abc"));
}

}  // namespace
}  // namespace lockstep::checkpoint

#include "runtime/checkpoint/part_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "runtime/checkpoint/block_sums.h"
#include "runtime/checkpoint/sha256.h"
#include "runtime/checkpoint/stored_checkpoints.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::chrono::seconds kPatience(30);
constexpr int64_t kRequest = int64_t{8} << 20;

// Objects in memory that record which of their bytes are requested.
class Objects final : public ObjectStore {
 public:
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    std::unique_lock lock(mutex_);
    reads_.emplace_back(offset, static_cast<int64_t>(target.size()));
    changed_.notify_all();
    // Each request waits for the others, so sequential requests would never end.
    const bool in_time = changed_.wait_for(lock, kPatience, [&] { return reads_.size() >= together_; });
    if (!in_time || offset == fails_at_) return Error{ErrorCode::kUnavailable, "no answer"};
    contents_.at(name).copy(target.data(), target.size(), static_cast<std::size_t>(offset));
    return {};
  }
  Result<void> Put(const std::string& name, std::string_view content) override {
    contents_[name] = content;
    return {};
  }
  Result<std::string> Get(const std::string& name) override { return contents_.at(name); }
  Result<std::vector<ObjectInfo>> List() override { return std::vector<ObjectInfo>(); }
  Result<void> Delete(const std::string& /*name*/) override { return {}; }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return "memory:///" + name; }

  void WaitForRequests(std::size_t count) { together_ = count; }
  void FailAt(int64_t offset) { fails_at_ = offset; }
  void Flip(const std::string& name, int64_t at) { contents_.at(name).at(static_cast<std::size_t>(at)) ^= 1; }
  // In order of offset.
  std::vector<std::pair<int64_t, int64_t>> reads() {
    std::sort(reads_.begin(), reads_.end());
    return reads_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> contents_;
  std::vector<std::pair<int64_t, int64_t>> reads_;  // offset and bytes
  std::size_t together_ = 0;
  int64_t fails_at_ = -1;
};

// One shard of 10 bytes of header and two tensors, "a" and "b".
class PartReader : public ::testing::Test {
 protected:
  void Store(int64_t bytes_of_a, int64_t bytes_of_b, int64_t block_bytes) {
    content_.resize(static_cast<std::size_t>(kHead + bytes_of_a + bytes_of_b));
    for (std::size_t i = 0; i < content_.size(); ++i) content_[i] = static_cast<char>(i * 31 + i / 4093);
    ShardEntry shard{.name = "shard",
                     .bytes = static_cast<int64_t>(content_.size()),
                     .sha256 = Sha256(content_),
                     .tensors = {{"a", "U8", {bytes_of_a}, kHead, bytes_of_a},
                                 {"b", "U8", {bytes_of_b}, kHead + bytes_of_a, bytes_of_b}},
                     .block_bytes = block_bytes};
    if (block_bytes > 0) shard.block_crc32 = BlockSums(content_, block_bytes);
    name_ = ObjectOf(1, shard);
    manifest_ = {.step = 1, .shards = {shard}};
    ASSERT_TRUE(objects_.Put(name_, content_).ok());
  }
  // Reads that part and compares it with what was stored.
  Result<int64_t> Read(const std::string& tensor, int64_t begin, int64_t size) {
    std::string target(static_cast<std::size_t>(size), '\0');
    LOCKSTEP_TRY(const int64_t bytes, ReadParts(objects_, manifest_, {{tensor, begin, target}}));
    const int64_t offset = manifest_.shards[0].tensors[tensor == "a" ? 0 : 1].offset + begin;
    EXPECT_EQ(target, content_.substr(static_cast<std::size_t>(offset), target.size()));
    return bytes;
  }

  static constexpr int64_t kHead = 10;
  std::string content_;
  std::string name_;
  Manifest manifest_;
  Objects objects_;
};

TEST_F(PartReader, AsksForTheBlocksThatAPartLiesInAndNoOthers) {
  Store(300, 300, 64);
  EXPECT_EQ(*Read("b", 20, 100), 128);  // bytes 330 to 430
  EXPECT_THAT(objects_.reads(), ElementsAre(Pair(320, 128)));
}

TEST_F(PartReader, AsksForPartsThatLieSideBySideTogether) {
  Store(300, 300, 64);
  std::string first(50, '\0');
  std::string second(40, '\0');
  std::string last(5, '\0');
  ASSERT_TRUE(ReadParts(objects_, manifest_, {{"b", 295, last}, {"a", 250, first}, {"b", 0, second}}).ok());
  EXPECT_EQ(first, content_.substr(260, 50));
  EXPECT_EQ(second, content_.substr(310, 40));
  EXPECT_EQ(last, content_.substr(605, 5));
  EXPECT_THAT(objects_.reads(), ElementsAre(Pair(256, 128), Pair(576, 34)));
}

// Both tensors, cut at arbitrary positions, in any order.
TEST_F(PartReader, FillsEveryPartHoweverTheTensorsAreCut) {
  EXPECT_TRUE(rc::check("every part is what was stored", [this] {
    const int64_t bytes = *rc::gen::inRange<int64_t>(0, 400);
    Store(bytes, 150, *rc::gen::inRange<int64_t>(0, 700));
    const int64_t cut = *rc::gen::inRange<int64_t>(0, bytes + 1);
    std::string before(static_cast<std::size_t>(cut), '\0');
    std::string after(static_cast<std::size_t>(bytes - cut), '\0');
    std::string b(static_cast<std::size_t>(*rc::gen::inRange(0, 151)), '\0');
    const auto read = ReadParts(objects_, manifest_, {{"a", cut, after}, {"b", 0, b}, {"a", 0, before}});
    RC_ASSERT(read.ok());
    RC_ASSERT(before + after + b == content_.substr(kHead, before.size() + after.size() + b.size()));
    RC_ASSERT(*read <= static_cast<int64_t>(content_.size()));
  }));
}

TEST_F(PartReader, AsksForALargePartInRequestsThatGoSideBySide) {
  Store(20 * kRequest, 0, kBlockBytes);
  objects_.WaitForRequests(8);
  EXPECT_EQ(*Read("a", 0, 20 * kRequest), 20 * kRequest + kHead);
  const auto reads = objects_.reads();
  EXPECT_EQ(reads.size(), 21U);
  for (const auto& [offset, bytes] : reads) EXPECT_LE(bytes, kRequest) << offset;
}

TEST_F(PartReader, NamesWhereBytesDifferFromTheManifest) {
  Store(300, 300, 64);
  objects_.Flip(name_, 400);
  EXPECT_TRUE(Read("a", 0, 300).ok()) << "it lies in other blocks";
  const auto damaged = Read("b", 20, 100);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(damaged.error().message, HasSubstr("memory:///step-000000000001/shard: bytes 320 to 448 "));
}

TEST_F(PartReader, VerifiesAShardOfAnEarlierVersionAsAWhole) {
  Store(300, 300, 0);
  EXPECT_EQ(*Read("b", 20, 100), 610);
  objects_.Flip(name_, 5);
  EXPECT_EQ(Read("b", 20, 100).error().code, ErrorCode::kDataLoss);
}

TEST_F(PartReader, EndsAtTheFirstError) {
  Store(30 * kRequest, 0, kBlockBytes);
  objects_.FailAt(2 * kRequest);
  const auto read = Read("a", 0, 30 * kRequest);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kUnavailable);
}

// For a shard of an earlier version, which is read completely.
TEST_F(PartReader, SaysThatMemoryIsShort) {
  Store(300, 300, 0);
  manifest_.shards[0].bytes = INT64_MAX;
  const auto read = Read("a", 0, 10);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kInternal);
  EXPECT_THAT(read.error().message, HasSubstr("no memory for 9223372036854775807 bytes of memory:///step-"));
  EXPECT_TRUE(objects_.reads().empty());
}

TEST_F(PartReader, ReadsNothingWhereNothingIsWanted) {
  Store(300, 0, 64);
  EXPECT_EQ(*ReadParts(objects_, manifest_, {}), 0);
  EXPECT_EQ(*Read("b", 0, 0), 0);
  EXPECT_TRUE(objects_.reads().empty());
}

TEST(BlockSums, AreThoseOfZlib) {
  EXPECT_EQ(BlockSums("123456789", 9), "cbf43926");
  EXPECT_EQ(BlockSums("123456789123456789", 9), "cbf43926cbf43926");
  EXPECT_EQ(BlockSums("1234567891", 9).substr(0, 8), "cbf43926");
  EXPECT_EQ(BlockSums("1234567891", 9).size(), 16U);
  EXPECT_EQ(BlockSums("", 9), "");
}

}  // namespace
}  // namespace lockstep::checkpoint

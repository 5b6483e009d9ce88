#include "runtime/checkpoint/parallel_read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPiece = std::size_t{8} << 20;

// One object. Its first piece arrives after the second, and never does if they are not asked for together.
class OneObject final : public ObjectStore {
 public:
  explicit OneObject(std::size_t bytes) : content_(bytes, '\0') {
    for (std::size_t i = 0; i < bytes; i += 4096) content_[i] = static_cast<char>(i / 4096 * 31);
  }
  Result<void> Read(const std::string& /*name*/, int64_t offset, std::span<char> target) override {
    std::unique_lock lock(mutex_);
    const auto begin = static_cast<std::size_t>(offset);
    ++reads_;
    if (begin == kPiece) second_arrived_ = true;
    changed_.notify_all();
    const bool in_time = changed_.wait_for(
        lock, 30s, [&] { return begin > 0 || second_arrived_ || content_.size() <= kPiece; });
    if (!in_time || begin / kPiece >= fails_from_) return Error{ErrorCode::kUnavailable, "no answer"};
    content_.copy(target.data(), target.size(), begin);
    return {};
  }

  Result<void> Put(const std::string& /*name*/, std::string_view /*content*/) override { return {}; }
  Result<std::string> Get(const std::string& /*name*/) override { return content_; }
  Result<std::vector<ObjectInfo>> List() override { return std::vector<ObjectInfo>(); }
  Result<void> Delete(const std::string& /*name*/) override { return {}; }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return name; }

  void FailFrom(std::size_t piece) { fails_from_ = piece; }
  [[nodiscard]] const std::string& content() const { return content_; }
  [[nodiscard]] int reads() const { return reads_; }

 private:
  std::string content_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool second_arrived_ = false;
  int reads_ = 0;
  std::size_t fails_from_ = 1000;
};

TEST(ParallelRead, LooksAtThePiecesInOrderHoweverTheyArrive) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, kPiece, 2 * kPiece + 1, 20 * kPiece}) {
    OneObject store(bytes);
    std::string target(bytes, 'x');
    std::string seen;
    ASSERT_TRUE(ReadInPieces(store, "shard", target, [&](std::string_view piece) { seen += piece; }).ok());
    EXPECT_TRUE(target == store.content()) << bytes;
    EXPECT_TRUE(seen == store.content()) << bytes;
  }
}

TEST(ParallelRead, EndsAtTheFirstError) {
  OneObject store(20 * kPiece);
  store.FailFrom(2);
  std::string target(20 * kPiece, '\0');
  const Result<void> read = ReadInPieces(store, "shard", target, [](std::string_view) {});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kUnavailable);
  EXPECT_LE(store.reads(), 2 + 8) << "each of the eight readers ends at its first";
}

}  // namespace
}  // namespace lockstep::checkpoint

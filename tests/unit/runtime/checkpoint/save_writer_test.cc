// How long a save waits for shards, with a clock that the test advances: no threads, no real time.

#include "runtime/checkpoint/save_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <functional>
#include <map>

#include "runtime/checkpoint/stored_checkpoints.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/runtime/checkpoint/aged_store.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::AgedStore;
using lockstep::testing::FakeClock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What other ranks publish depends on how long this one has waited.
class ScriptedExchange final : public ShardExchange {
 public:
  explicit ScriptedExchange(FakeClock& clock) : clock_(clock), start_(clock.Steady()) {}

  Result<void> Publish(const std::string& key, const std::string& value) override {
    published.emplace_back(waited(), key, value);
    return {};
  }
  Result<std::string> Wait(const std::string& key, std::chrono::milliseconds limit) override {
    const std::optional<std::string> value = answer(key, waited());
    if (value.has_value()) return *value;
    clock_.Advance(limit);
    return Error{ErrorCode::kDeadlineExceeded, "not yet"};
  }
  bool IsOver() override { return waited() >= over_at; }
  [[nodiscard]] Seconds waited() const { return clock_.Steady() - start_; }

  std::function<std::optional<std::string>(const std::string& key, Seconds waited)> answer;
  Seconds over_at{1e9};
  std::vector<std::tuple<Seconds, std::string, std::string>> published;

 private:
  FakeClock& clock_;
  const SteadyTime start_;
};

// A network that takes the same time for each piece.
class SlowStore final : public ObjectStore {
 public:
  SlowStore(FakeClock& clock, Milliseconds of_a_piece) : clock_(clock), of_a_piece_(of_a_piece) {}
  Result<void> Put(const std::string& name, std::string_view content) override {
    return store_.Put(name, content);
  }
  Result<void> PutPaced(const std::string& name, std::string_view content, const Pace& pace) override {
    for (std::size_t begin = 0; begin < content.size(); begin += kPacedBytes) {
      LOCKSTEP_TRY(pace(static_cast<int64_t>(content.substr(begin, kPacedBytes).size())));
      clock_.Advance(of_a_piece_);
    }
    return store_.Put(name, content);
  }
  Result<std::string> Get(const std::string& name) override { return store_.Get(name); }
  Result<void> Read(const std::string&, int64_t, std::span<char>) override { return {}; }
  Result<std::vector<ObjectInfo>> List() override { return store_.List(); }
  Result<void> Delete(const std::string& name) override { return store_.Delete(name); }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return store_.UriOf(name); }

  [[nodiscard]] std::vector<std::string> Names() const { return store_.Names(); }

 private:
  FakeClock& clock_;
  const Milliseconds of_a_piece_;
  AgedStore store_;
};

class SaveWriterTest : public ::testing::Test {
 protected:
  // A shard of so many bytes and a header.
  PendingSave SaveOf(int rank, int64_t bytes) const {
    const at::Tensor weight = at::zeros({bytes}, at::kByte);
    return {.place = {.step = 7, .round = 3, .rank = rank, .world = 2, .tensors = {}},
            .share = std::make_shared<HostCopy>(std::vector<NamedTensor>{{"weight", weight}}, nullptr),
            .exchange = exchange_,
            .started = clock_.Steady()};
  }
  SaveOutcome Write(ObjectStore& store, const PendingSave& save) {
    const Ownership ownership(store, job_, {.uri = "memory://", .holder = "test"}, clock_);
    SaveWriter writer(spec_, job_, training_, store, ownership, clock_,
                      [](const PendingSave&, int64_t, const std::function<void()>&) {});
    return writer.Write(save);
  }
  static std::string ShardOfRank1() {
    return EncodeShardEntry({ShardName(1, {"uid-1", 2, 3}), 8, std::string(64, '0'), {}});
  }
  static bool IsProgress(const std::string& key) { return key.ends_with("/progress"); }

  FakeClock clock_;
  AgedStore store_;
  api::CheckpointSpec spec_;
  const protocol::JobIdentity job_{"default", "mnist", "uid-1"};
  const Json training_ = Json::object();
  std::shared_ptr<ScriptedExchange> exchange_ = std::make_shared<ScriptedExchange>(clock_);
};

TEST_F(SaveWriterTest, WaitsForARankThatUploadsForManyTimesTheLimit) {
  exchange_->answer = [](const std::string& key, Seconds waited) -> std::optional<std::string> {
    if (IsProgress(key)) return std::to_string(static_cast<int64_t>(waited / (kStallLimit / 2)));
    return waited > 10 * kStallLimit ? std::optional(ShardOfRank1()) : std::nullopt;
  };
  const SaveOutcome outcome = Write(store_, SaveOf(0, 8));
  EXPECT_FALSE(outcome.error) << outcome.error->ToString();
  EXPECT_TRUE(ReadManifest(store_, 7).ok());
}

TEST_F(SaveWriterTest, GivesUpARankThatMakesNoProgress) {
  exchange_->answer = [](const std::string& key, Seconds waited) -> std::optional<std::string> {
    if (!IsProgress(key)) return std::nullopt;
    return std::to_string(static_cast<int64_t>(std::min<Seconds>(waited, 100s).count()));
  };
  const SaveOutcome outcome = Write(store_, SaveOf(0, 8));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(outcome.error->message, HasSubstr("rank 1 has not stored its shard"));
  EXPECT_GT(exchange_->waited(), 100s + kStallLimit);
  EXPECT_LT(exchange_->waited(), 105s + kStallLimit);
  EXPECT_THAT(store_.Names(), IsEmpty()) << "the shard of rank 0 takes the room of the next save";
}

TEST_F(SaveWriterTest, WaitsAfterTheRoundForAsLongAsARankMakesProgress) {
  exchange_->over_at = 20s;
  exchange_->answer = [](const std::string& key, Seconds waited) -> std::optional<std::string> {
    if (IsProgress(key)) return std::to_string(static_cast<int64_t>(waited / 5s));
    return waited > 10 * kStallLimitAfterTheRound ? std::optional(ShardOfRank1()) : std::nullopt;
  };
  const SaveOutcome outcome = Write(store_, SaveOf(0, 8));
  EXPECT_FALSE(outcome.error) << outcome.error->ToString();
}

TEST_F(SaveWriterTest, GivesUpARankThatIsDeadSoonAfterTheRound) {
  exchange_->over_at = 20s;
  exchange_->answer = [](const std::string&, Seconds) { return std::optional<std::string>(); };
  const SaveOutcome outcome = Write(store_, SaveOf(0, 8));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kAborted);
  EXPECT_LT(exchange_->waited(), 20s + kStallLimitAfterTheRound + 5s);
}

TEST_F(SaveWriterTest, WaitsForNoOtherRankOnceOneWasGivenUp) {
  PendingSave save = SaveOf(0, 8);
  save.place.world = 9;
  exchange_->answer = [](const std::string& key, Seconds) {
    return key.ends_with("/5")
               ? std::optional(EncodeShardEntry({ShardName(5, {"uid-1", 9, 3}), 8, std::string(64, '0'), {}}))
               : std::nullopt;
  };
  ASSERT_TRUE(store_.Put(FolderOfStep(7) + "/" + ShardName(5, {"uid-1", 9, 3}), "shard").ok());
  EXPECT_EQ(Write(store_, save).error->code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(exchange_->waited(), kStallLimit + 5s);
  EXPECT_THAT(store_.Names(), IsEmpty()) << "what is stored already is removed, too";
}

TEST_F(SaveWriterTest, ReportsItsProgressAtMostOnceASecondWhileItUploads) {
  SlowStore store(clock_, 250ms);
  const SaveOutcome outcome = Write(store, SaveOf(1, 40 * kPacedBytes));
  ASSERT_FALSE(outcome.error) << outcome.error->ToString();
  const auto& published = exchange_->published;
  ASSERT_EQ(published.size(), 11U) << "each second, and the shard";
  int64_t newest = 0;
  for (std::size_t i = 0; i + 1 < published.size(); ++i) {
    const auto& [when, key, value] = published[i];
    EXPECT_TRUE(IsProgress(key));
    EXPECT_GT(std::stoll(value), newest);
    newest = std::stoll(value);
  }
  EXPECT_FALSE(IsProgress(std::get<1>(published.back())));
}

TEST_F(SaveWriterTest, ReportsToRank0ThatThereIsNoMemory) {
  class Exhausted final : public ObjectStore {
   public:
    Result<void> Put(const std::string&, std::string_view) override { throw std::bad_alloc(); }
    Result<std::string> Get(const std::string& name) override { return Error{ErrorCode::kNotFound, name}; }
    Result<void> Read(const std::string&, int64_t, std::span<char>) override { return {}; }
    Result<std::vector<ObjectInfo>> List() override { return std::vector<ObjectInfo>(); }
    Result<void> Delete(const std::string&) override { return {}; }
    [[nodiscard]] std::string UriOf(const std::string& name) const override { return name; }
  } store;
  EXPECT_TRUE(Write(store, SaveOf(1, 8)).error);
  ASSERT_EQ(exchange_->published.size(), 1U);
  EXPECT_THAT(std::get<2>(exchange_->published[0]), HasSubstr("error"));
}

}  // namespace
}  // namespace lockstep::checkpoint

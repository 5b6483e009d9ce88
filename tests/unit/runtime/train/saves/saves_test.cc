#include "runtime/train/saves/saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "runtime/checkpoint/file_store.h"
#include "runtime/checkpoint/shard_messages.h"
#include "tests/support/fake_clock.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/limited_memory.h"
#include "tests/support/state_of.h"
#include "tests/unit/runtime/checkpoint/memory_exchange.h"

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;
using testing::ExpectAllSucceed;
using testing::FakeClock;
using testing::LimitedMemory;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

constexpr std::chrono::seconds kLong(60);

// Each rank's share is several MiB.
api::TrainingSpec Training() {
  api::TrainingSpec spec;
  spec.model.mlp.hidden_sizes = {1000, 1000, 1000};
  return spec;
}

// A store whose network takes twenty minutes or more for a shard; it continues once the rank has reported
// enough signs of life.
class SlowStore final : public checkpoint::ObjectStore {
 public:
  SlowStore(const std::string& folder, FakeClock& clock, int supervisor)
      : store_(std::move(checkpoint::OpenFileStore(folder)).value()),
        clock_(clock),
        supervisor_{.fd = supervisor, .events = POLLIN, .revents = 0} {}
  Result<void> Put(const std::string& name, std::string_view content) override {
    return store_->Put(name, content);
  }
  Result<void> PutPaced(const std::string& name, std::string_view content,
                        const checkpoint::Pace& pace) override {
    for (int sign = 0; sign < kSigns; ++sign) {
      for (int look = 0; !HasShownThatItLives(); ++look) {
        if (look == kLooks) return Error{ErrorCode::kInternal, "no sign of life"};
        clock_.Advance(1min);
        LOCKSTEP_TRY(pace(1));
      }
    }
    return store_->Put(name, content);
  }
  Result<std::string> Get(const std::string& name) override { return store_->Get(name); }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    return store_->Read(name, offset, target);
  }
  Result<std::vector<checkpoint::ObjectInfo>> List() override { return store_->List(); }
  Result<void> Delete(const std::string& name) override { return store_->Delete(name); }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return store_->UriOf(name); }

 private:
  static constexpr int kSigns = 20;
  static constexpr int kLooks = 3000;  // of 20 ms each

  bool HasShownThatItLives() {
    std::array<char, 1024> text{};
    return ::poll(&supervisor_, 1, 20) == 1 && ::recv(supervisor_.fd, text.data(), text.size() - 1, 0) > 0 &&
           std::string(text.data()).find("\"save\"") != std::string::npos;
  }

  const std::unique_ptr<checkpoint::ObjectStore> store_;
  FakeClock& clock_;
  pollfd supervisor_;
};

// A rank that saves, and its supervisor's end of the link.
struct Saver {
  explicit Saver(const std::string& folder, bool is_slow = false,
                 const api::TrainingSpec& training = Training())
      : owned(std::move(MakeTrainingState(training, {{1, 8, 8}, 10})).value()), state(*owned) {
    spec.uri = "file://" + folder;
    spec.interval_seconds = 60;
    std::unique_ptr<checkpoint::ObjectStore> store;
    if (is_slow) store = std::make_unique<SlowStore>(folder, clock, supervisor.get());
    if (!is_slow) store = std::move(checkpoint::OpenFileStore(folder)).value();
    checkpointer = std::make_unique<checkpoint::Checkpointer>(
        spec, protocol::JobIdentity{"default", "mnist", "uid-1"}, Json::object(), std::move(store));
    saves = std::make_unique<Saves>(SaveContext{
        .checkpointer = checkpointer.get(),
        .spec = spec,
        .clock = clock,
        .link = link,
        .phases = phases,
        .patience = patience,
        .history = history,
        .steps_per_epoch = 10,
    });
    state.step = 0;
  }
  static std::array<int, 2> Connect() {
    std::array<int, 2> ends{};
    LOCKSTEP_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    return ends;
  }
  // What was sent to the supervisor since the last call.
  std::string Sent() {
    std::array<char, 65536> text{};
    const ssize_t bytes = ::recv(supervisor.get(), text.data(), text.size(), MSG_DONTWAIT);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, bytes))};
  }

  api::CheckpointSpec spec;
  FakeClock clock;
  std::array<int, 2> ends = Connect();
  protocol::ControlLink link{Fd(ends[0])};
  Fd supervisor{ends[1]};
  PhaseClock phases{clock};
  StorePatience patience{
      {Seconds(60), clock, [](const protocol::StoreUnavailable&) {}, [](Milliseconds) { return true; }}};
  std::vector<protocol::HistoryRecord> history;
  const std::unique_ptr<TrainingState> owned;
  TrainingState& state;
  std::unique_ptr<checkpoint::Checkpointer> checkpointer;
  std::unique_ptr<Saves> saves;
};

class SavesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] bool IsStored(int64_t step) const {
    return std::filesystem::exists(folder_ + "/" + checkpoint::FolderOfStep(step) + "/manifest.json");
  }
  std::string folder_ = ::testing::TempDir() + "lockstep-saves-XXXXXX";
};

// Training continues, and saves again at its next interval.
TEST_F(SavesTest, FailsOnAllRanksWhereOneHasNoMemoryForItsCopy) {
  RoundConnector connector;
  auto ranks = StartRanks(3, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    LimitedMemory memory;
    Saver saver(folder_);
    saver.clock.Advance(61s);
    REQUIRE(saver.saves->IsDue(saver.state.step = 1));
    memory.is_exhausted = rank == 1;
    REQUIRE(saver.saves->Start(*communicator, saver.state).ok());
    REQUIRE(!saver.saves->IsDue(saver.state.step = 2));
    saver.saves->Drain(kLong);
    const std::string sent = saver.Sent();
    REQUIRE((sent.find("saveFailed") != std::string::npos) == (rank < 2));
    REQUIRE((sent.find("copying the state: out of memory") != std::string::npos) == (rank == 1));
    REQUIRE((sent.find("rank 1 could not copy its part of the state") != std::string::npos) == (rank == 0));

    memory.is_exhausted = false;
    saver.clock.Advance(61s);
    REQUIRE(saver.saves->IsDue(saver.state.step = 3));
    REQUIRE(saver.saves->Start(*communicator, saver.state).ok());
    saver.saves->Drain(kLong);
    REQUIRE(saver.Sent().find("saveFailed") == std::string::npos);
    REQUIRE((*communicator)->Barrier().ok());
    return 0;
  });
  ExpectAllSucceed(ranks);
  EXPECT_TRUE(IsStored(3));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + checkpoint::FolderOfStep(1))) << "no rank wrote it";
}

// The last save of a training: all ranks wait and try again.
TEST_F(SavesTest, ReportsToAllRanksWhoWaitForTheSaveThatMemoryMayComeBack) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    LimitedMemory memory;
    Saver saver(folder_);
    memory.is_exhausted = rank == 0;
    const auto failed = saver.saves->SaveTogether(*communicator, saver.state, kLong, 1);
    REQUIRE(!failed.ok() && failed.error().IsTransient());
    memory.is_exhausted = false;
    REQUIRE(saver.saves->SaveTogether(*communicator, saver.state, kLong, 1).ok());
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// As the last save of a training does.
TEST_F(SavesTest, WaitsForASaveThatMakesProgressAndShowsThatItLives) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    Saver saver(folder_, /*is_slow=*/true);
    REQUIRE(saver.saves->SaveTogether(*communicator, saver.state, std::nullopt, 1).ok());
    return 0;
  });
  ExpectAllSucceed(ranks);
  EXPECT_TRUE(IsStored(0));
}

TEST_F(SavesTest, ASaveThatANewerOneReplacedHasNotFailed) {
  Saver saver(folder_);
  const auto sent_after = [&](int64_t step, ErrorCode code) {
    const auto exchange = std::make_shared<checkpoint::MemoryExchange>();
    const Error of_rank_1{code, "as the test says"};
    EXPECT_TRUE(checkpoint::PublishShard(*exchange, {.round = 1, .step = step}, 1, of_rank_1).ok());
    saver.checkpointer->Save(
        {.step = step, .round = 1, .rank = 0, .world = 2, .tensors = saver.state.Tensors()}, exchange);
    EXPECT_TRUE(saver.checkpointer->Wait(kLong).ok());
    saver.saves->Report();
    return saver.Sent();
  };
  EXPECT_THAT(sent_after(1, ErrorCode::kForbidden), ::testing::HasSubstr("as the test says"));
  EXPECT_EQ(sent_after(2, ErrorCode::kCancelled), "");
}

// The other parts were on other ranks, which handed them over or stored them: no further try within the grace
// period helps.
TEST_F(SavesTest, SavesNoPartOfAStateAloneAndNeverWill) {
  api::TrainingSpec training = Training();
  training.strategy = api::Strategy::kZero1;
  Saver divided(folder_, /*is_slow=*/false, training);
  testing::ShardsOf(divided.state).Load(5, {0, 100}, {at::zeros({100}), at::zeros({100})});
  training.strategy = api::Strategy::kPipeline;
  Saver staged(folder_, /*is_slow=*/false, training);
  testing::StagesOf(staged.state).Forget();
  for (Saver* saver : {&divided, &staged}) {
    const auto saved = saver->saves->SaveAlone(saver->state, {}, kLong);
    ASSERT_FALSE(saved.ok());
    EXPECT_FALSE(saved.error().IsTransient()) << saved.error().message;
    EXPECT_THAT(saved.error().message, ::testing::StartsWith("this rank holds"));
  }
}

}  // namespace
}  // namespace lockstep::train

// A rank has committed a step that the others have not: the step counts, once.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/common/base/json.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

// The sums of a step reach all ranks but this one, so it cannot know that the others have them.
class LastHopLost final : public parallel::Strategy {
 public:
  explicit LastHopLost(parallel::Strategy& whole) : whole_(whole) {}

  Result<void> BeginStep(std::span<const int64_t> micro_batches) override {
    return whole_.BeginStep(micro_batches);
  }
  Result<void> Backward(const at::Tensor& loss_sum, bool last) override {
    LOCKSTEP_TRY(whole_.Backward(loss_sum, last));
    return last ? Result<void>(Error{ErrorCode::kAborted, "the last part never came"}) : Result<void>{};
  }
  double exposed_seconds() const override { return whole_.exposed_seconds(); }
  Result<void> BackwardOfNothing() override { return whole_.BackwardOfNothing(); }

 private:
  parallel::Strategy& whole_;
};

class Folder {
 public:
  Folder() : path_(::mkdtemp(name_.data())) {}
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string name_ = (std::filesystem::temp_directory_path() / "lockstep-ledger-XXXXXX").string();
  std::string path_;
};

struct Entry {
  std::string event;
  int64_t round;
  int64_t step;
  int rank;
  std::vector<int64_t> ids;
};

std::vector<Entry> ReadLedger(const std::string& folder) {
  std::vector<Entry> entries;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) {
      const Json json = std::move(ParseJson(line)).value();
      entries.push_back({json.at("event"), json.at("round"), json.at("step"), json.at("rank"),
                         json.value("ids", std::vector<int64_t>())});
    }
  }
  return entries;
}

// What the surviving history used in each step, and which ranks committed it in which round.
struct History {
  std::map<int64_t, int64_t> round_of;
  std::map<int64_t, std::vector<int64_t>> ids;
  std::map<int64_t, std::vector<int>> committed_by;
};

History HistoryOf(const std::vector<Entry>& entries) {
  History history;
  for (const Entry& entry : entries) {
    if (entry.event == "commit")
      history.round_of[entry.step] = std::max(history.round_of[entry.step], entry.round);
  }
  for (const Entry& entry : entries) {
    if (history.round_of[entry.step] != entry.round) continue;
    if (entry.event == "commit") history.committed_by[entry.step].push_back(entry.rank);
    auto& ids = history.ids[entry.step];
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.end());
  }
  return history;
}

std::string BitsOfAQuietRun(const api::TrainingSpec& spec) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel& parent) {
    at::set_num_threads(1);
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    Trainer trainer(spec);
    REQUIRE(trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
    parent.Send(trainer.Bits());
    return 0;
  });
  return ranks[0].channel().Receive(kPatience).value_or("nothing");
}

constexpr int64_t kBroken = 2;  // the step that only rank 0 commits

// Of three ranks, in the second round: 0 is a step ahead, 1 is not, 2 was killed in between.
TEST(Reconciliation, CountsAStepOnceThatOnlyOneSurvivorCommitted) {
  const api::TrainingSpec spec = SmallTraining(api::Determinism::kWorld);
  const Folder folder;
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(3, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.ledger_folder = folder.path()});
    auto communicator = first.Enter(1, rank, 3);
    REQUIRE(communicator.ok());
    {
      auto strategy = MakeStrategy(spec, *communicator, trainer.replicated());
      REQUIRE(strategy.ok());
      REQUIRE(trainer.RunRoundWith(**strategy, **communicator, kBroken).ok());
      const std::string before = trainer.StateBytes();
      LastHopLost lost(**strategy);
      if (rank == 0) {
        REQUIRE(trainer.RunRoundWith(**strategy, **communicator, kBroken + 1).ok());
      } else {
        const Result<void> broken = trainer.RunRoundWith(lost, **communicator, kBroken + 1);
        REQUIRE(!broken.ok());
        REQUIRE(broken.error().code == ErrorCode::kAborted);
        REQUIRE(trainer.state().step == kBroken);
        REQUIRE(trainer.StateBytes() == before);
      }
      parent.Send("stepped");
      REQUIRE(parent.Receive(kPatience) == "killed");
      (*communicator)->Abort();
    }
    communicator = second.Enter(2, rank, 2);
    REQUIRE(communicator.ok());
    const auto source = trainer.Sync(**communicator);
    REQUIRE(source.ok());
    REQUIRE(*source == (rank == 0 ? StateSource::kKept : StateSource::kPeer));
    REQUIRE(trainer.state().step == kBroken + 1);
    REQUIRE(trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
    parent.Send(trainer.Bits());
    return 0;
  });
  for (auto& rank : ranks) ASSERT_EQ(rank.channel().Receive(kPatience), "stepped");
  ranks[2].Signal(SIGKILL);
  EXPECT_EQ(ranks[2].Wait(kPatience), 128 + SIGKILL);
  for (const int survivor : {0, 1}) ranks[survivor].channel().Send("killed");
  const auto bits = ranks[0].channel().Receive(kPatience);
  ASSERT_TRUE(bits.has_value());
  EXPECT_EQ(ranks[1].channel().Receive(kPatience), bits);
  for (const int survivor : {0, 1}) EXPECT_EQ(ranks[survivor].Wait(kPatience), 0);
  EXPECT_EQ(*bits, BitsOfAQuietRun(spec));

  History history = HistoryOf(ReadLedger(folder.path()));
  EXPECT_EQ(history.round_of[kBroken], 1) << "done again, although a survivor had committed it";
  EXPECT_EQ(history.committed_by[kBroken], std::vector<int>{0});
  const data::SamplePlan plan = PlanOf(spec);
  for (int64_t step = 0; step < Trainer::kTotalSteps; ++step) {
    std::vector<int64_t> expected = plan.Ids(step, 0, plan.CountOf(step));
    std::sort(expected.begin(), expected.end());
    std::sort(history.ids[step].begin(), history.ids[step].end());
    EXPECT_EQ(history.ids[step], expected) << "step " << step;
  }
}

}  // namespace
}  // namespace lockstep::train

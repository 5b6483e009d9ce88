// Which stored checkpoints fit a training, and what is said of those that do not.

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/saves/restore_fixture.h"

namespace lockstep::train {
namespace {

using namespace restore_fixture;
using testing::ExpectAllSucceed;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

TEST_F(RestoreTest, NamesWhatDoesNotFitOnEveryRank) {
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    if (rank == 0) Save(120);
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto owned = std::move(MakeTrainingState(Training(api::Strategy::kDdp, 1600), kInput)).value();
    TrainingState& state = *owned;
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, state);
    REQUIRE(!restored.ok() && restored.error().code == ErrorCode::kInvalidArgument);
    REQUIRE(restored.error().message.find("spec.checkpoint.resume: file://" + folder_) != std::string::npos);
    REQUIRE(restored.error().message.find("has another shape or type") != std::string::npos);
    REQUIRE(place.store->bytes_read == 0);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

api::TrainingSpec WithAFrozenLayer(api::Strategy strategy) {
  api::TrainingSpec spec = Training(strategy);
  spec.optimizer.groups = {{.match = {"fc1.*"}, .frozen = true}};
  return spec;
}

TEST_F(RestoreTest, ReadsACheckpointWithStateOfParametersThatAreFrozenNow) {
  for (const auto strategy : {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kPipeline}) {
    SCOPED_TRACE(api::NameOf(strategy));
    RoundConnector connector;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      if (rank == 0) Save(120);
      auto communicator = connector.Enter(1, rank, 2);
      REQUIRE(communicator.ok());
      Place place = Open();
      const auto state = std::move(MakeTrainingState(WithAFrozenLayer(strategy), kInput)).value();
      const auto source = state->Sync(**communicator, [&](TrainingState& restored) {
        return RestoreTogether(**communicator, *place.checkpointer, restored);
      });
      REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
      REQUIRE(HoldsWhatWasStored(**communicator, *state, 120));
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

TEST_F(RestoreTest, SaysThatAParameterWasFrozenWhenItIsTrainedNow) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    Save(120, WithAFrozenLayer(api::Strategy::kDdp));
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    Place place = Open();
    const auto state = std::move(MakeTrainingState(Training(api::Strategy::kDdp), kInput)).value();
    const auto restored = RestoreTogether(**communicator, *place.checkpointer, *state);
    REQUIRE(!restored.ok() && restored.error().code == ErrorCode::kInvalidArgument);
    const auto says = [&](const std::string& text) {
      return restored.error().message.find(text) != std::string::npos;
    };
    REQUIRE(says("optimizer.exp_avg.fc1.weight is not in it, because fc1.weight was frozen"));
    REQUIRE(says("spec.checkpoint.restore: Weights"));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

api::TrainingSpec WithAnAverage(api::Strategy strategy) {
  api::TrainingSpec spec = Training(strategy);
  spec.optimizer.weight_average = api::WeightAverageSpec{};
  return spec;
}

TEST_F(RestoreTest, KeepsTheOtherSlotsWhenTheAverageIsTurnedOnOrOff) {
  const std::vector<std::string> says = {"the checkpoint has no average of the weights",
                                         "the average of the weights in the checkpoint is not taken"};
  for (const bool turns_on : {true, false}) {
    const auto stored = turns_on ? Training(api::Strategy::kDdp) : WithAnAverage(api::Strategy::kDdp);
    for (const auto strategy :
         {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kFsdp, api::Strategy::kPipeline}) {
      SCOPED_TRACE(api::NameOf(strategy));
      RoundConnector connector;
      auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
        at::set_num_threads(1);
        if (rank == 0) Save(120, stored);
        auto communicator = connector.Enter(1, rank, 2);
        REQUIRE(communicator.ok());
        const Place place = Open();
        const auto state =
            std::move(MakeTrainingState(turns_on ? WithAnAverage(strategy) : Training(strategy), kInput))
                .value();
        if (rank == 0 && strategy == api::Strategy::kDdp) {  // a source of its state died half-way
          const at::NoGradGuard no_grad;
          for (const NamedTensor& named : state->Replicated()) named.tensor.fill_(7);
          state->Tear();
        }
        ::testing::internal::CaptureStderr();
        const auto source = SyncFrom(place, **communicator, *state);
        const std::string log = ::testing::internal::GetCapturedStderr();
        REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
        REQUIRE(HoldsWhatWasStored(**communicator, *state, 120, stored));
        for (std::size_t i = 0; i < says.size(); ++i)
          REQUIRE((log.find(says[i]) != std::string::npos) == (rank == 0 && turns_on == (i == 0)));
        return 0;
      });
      ExpectAllSucceed(ranks);
      std::filesystem::remove_all(folder_ + "/" + checkpoint::FolderOfStep(120));
    }
  }
}

struct OtherTraining {
  std::string name;
  api::TrainingSpec spec;
  std::string missing;  // the first tensor that the checkpoint has not
};

std::vector<OtherTraining> OtherTrainings() {
  std::vector<OtherTraining> all;
  for (const auto strategy :
       {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kFsdp, api::Strategy::kPipeline}) {
    all.push_back({std::string(api::NameOf(strategy)), Training(strategy), "optimizer.momentum."});
    all.back().spec.optimizer = {.name = api::OptimizerName::kSgd, .learning_rate = 0.01, .momentum = 0.9};
  }
  all.push_back({"muon", Training(api::Strategy::kDdp), "optimizer.momentum."});
  all.back().spec.optimizer = {.name = api::OptimizerName::kMuon, .momentum = 0.95};
  all.push_back({"outer", Training(api::Strategy::kLocalsgd), "outer.momentum."});
  all.back().spec.sync.outer = api::OuterSpec{};
  return all;
}

bool IsOfTheOptimizer(const std::string& name) {
  return name.starts_with("optimizer.") || name.starts_with("outer.");
}

// Whether the rank holds the stored weights, and zeros for the optimizer.
bool HoldsTheWeightsAlone(comm::Communicator& communicator, TrainingState& state, double step) {
  std::map<std::string, at::Tensor> stored;
  const auto marked = Marked(step);
  for (const NamedTensor& named : marked->Tensors()) stored[named.name] = named.tensor;
  std::vector<NamedTensor> held = state.Replicated();
  if (!state.has_whole_model()) {
    const auto layers = HeldLayers(communicator, state);
    if (!layers.ok()) return false;
    held.insert(held.end(), layers->begin(), layers->end());
  } else if (state.is_divided()) {
    const auto moments = MomentsOnRank0(communicator, state);
    if (!moments.ok()) return false;
    if (communicator.rank() == 0) held.insert(held.end(), moments->begin(), moments->end());
  }
  return std::all_of(held.begin(), held.end(), [&](const NamedTensor& named) {
    if (IsOfTheOptimizer(named.name)) return named.tensor.count_nonzero().item<int64_t>() == 0;
    return named.tensor.equal(stored.at(named.name));
  });
}

TEST_F(RestoreTest, TakesTheWeightsAloneOfAnotherJobsCheckpointWhereTheSpecSaysSo) {
  for (const OtherTraining& other : OtherTrainings()) {
    SCOPED_TRACE(other.name);
    RoundConnector connector;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      if (rank == 0 && !std::filesystem::exists(folder_ + "/" + checkpoint::FolderOfStep(120))) Save(120);
      auto communicator = connector.Enter(1, rank, 2);
      REQUIRE(communicator.ok());
      const auto owned = std::move(MakeTrainingState(other.spec, kInput)).value();
      TrainingState& state = *owned;
      Place place = Open("uid-2");
      const auto refused = RestoreTogether(**communicator, *place.checkpointer, state);
      REQUIRE(!refused.ok() && refused.error().code == ErrorCode::kInvalidArgument);
      REQUIRE(refused.error().message.find(other.missing) != std::string::npos);
      REQUIRE(refused.error().message.find("set spec.checkpoint.restore: Weights") != std::string::npos);

      if (rank == 0 && state.has_whole_model()) {  // a source of its state died half-way
        const at::NoGradGuard no_grad;
        for (const NamedTensor& named : state.Replicated()) named.tensor.fill_(7);
        state.Tear();
      }
      spec_.restore = api::RestoredPart::kWeights;
      place = Open("uid-2");
      ::testing::internal::CaptureStderr();
      const auto source = SyncFrom(place, **communicator, state);
      const std::string log = ::testing::internal::GetCapturedStderr();
      REQUIRE(source.ok() && *source == StateSource::kCheckpoint);
      REQUIRE(state.step == 0);
      REQUIRE(HoldsTheWeightsAlone(**communicator, state, 120));
      const bool is_said =
          log.find("\"not_taken\":\"evaluations, optimizer.exp_avg, optimizer.exp_avg_sq, step\"") !=
          std::string::npos;
      REQUIRE(is_said == (rank == 0));
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

class RestoreOfWeights : public RestoreTest {
 protected:
  // One rank saves step 120 as uid-1 and restores the weights as another job, or the same.
  void Restore(
      const std::string& job_uid, const api::TrainingSpec& spec,
      const std::function<bool(comm::Communicator&, TrainingState&, const Result<bool>&)>& is_right) {
    RoundConnector connector;
    auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      Save(120);
      auto communicator = connector.Enter(1, rank, 1);
      REQUIRE(communicator.ok());
      spec_.restore = api::RestoredPart::kWeights;
      const Place place = Open(job_uid);
      const auto state = std::move(MakeTrainingState(spec, kInput)).value();
      const auto restored = RestoreTogether(**communicator, *place.checkpointer, *state);
      REQUIRE(is_right(**communicator, *state, restored));
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
};

// A job that began that way continues from its own checkpoints.
TEST_F(RestoreOfWeights, TakesAllOfAnOwnCheckpoint) {
  Restore("uid-1", Training(api::Strategy::kDdp),
          [](comm::Communicator& communicator, TrainingState& state, const Result<bool>& restored) {
            return restored.ok() && *restored && state.step == 120 &&
                   HoldsWhatWasStored(communicator, state, 120);
          });
}

// The weights of another model do not fit this one.
TEST_F(RestoreOfWeights, RefusesThoseOfAnotherModel) {
  Restore("uid-2", Training(api::Strategy::kDdp, 1600),
          [](comm::Communicator&, TrainingState&, const Result<bool>& restored) {
            return !restored.ok() && restored.error().code == ErrorCode::kInvalidArgument &&
                   restored.error().message.find("has another shape or type; use Never") != std::string::npos;
          });
}

}  // namespace
}  // namespace lockstep::train

#include "runtime/train/fsdp/fsdp_stepper.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/train/loop/evaluation.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/fsdp/as_with_ddp.h"
#include "tests/unit/runtime/train/token_folder.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using namespace as_with_ddp;
using api::Precision;
using testing::ExpectAllSucceed;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

void ExpectDdp(const api::TrainingSpec& spec, int world, const TrainerOptions& options = {}) {
  RoundConnector connector;
  auto ranks = StartRanks(world, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    Trainer trainer(spec, options);
    auto communicator = EnterRound(connector, 1, rank, world, trainer);
    REQUIRE(communicator.ok());
    REQUIRE(trainer.Sync(**communicator).ok());
    REQUIRE(trainer.RunRound(*communicator, kSteps).ok());
    REQUIRE(IsAsWithDdp(
        spec, trainer, **communicator,
        {.non_finite = options.non_finite, .corrupt = options.corrupt, .loss_scale = options.loss_scale}));
    return 0;
  });
  SCOPED_TRACE(std::to_string(world) + " ranks");
  ExpectAllSucceed(ranks);
}

TEST(FsdpStepper, GivesTheStateOfDdpInEachWorld) {
  for (const int world : {1, 2, 3, 4}) ExpectDdp(Training(api::Strategy::kFsdp), world);
}

TEST(FsdpStepper, GivesTheStateOfDdpWithCopies) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  for (const auto& [copies, world] : std::vector<std::pair<int, int>>{{2, 1}, {2, 2}, {3, 4}, {4, 3}}) {
    spec.fsdp.copies = copies;
    ExpectDdp(spec, world);
  }
}

// With five ranks the smallest group of at least two has all of them.
TEST(FsdpStepper, GivesTheStateOfDdpInGroups) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.fsdp.sharding_group = 2;
  for (const int world : {1, 2, 4, 5, 6}) ExpectDdp(spec, world);
  spec.fsdp.sharding_group = 3;
  spec.micro_batch_size = 3;
  ExpectDdp(spec, 6, {.speeds = {1, 6, 2, 3, 1, 1}});
  spec.fsdp.copies = 3;  // two groups, so two copies inside each
  ExpectDdp(spec, 6);
}

std::vector<double> LossesOf(Trainer& trainer, const std::shared_ptr<comm::Communicator>& communicator,
                             int64_t steps) {
  std::vector<double> losses;
  LOCKSTEP_CHECK(trainer.Sync(*communicator).ok());
  for (int64_t step = 1; step <= steps; ++step) {
    LOCKSTEP_CHECK(trainer.RunRound(communicator, step).ok());
    losses.push_back(trainer.last().loss);
  }
  return losses;
}

TEST(FsdpStepper, HasTheLossesAndWeightsOfDdpOverFiftySteps) {
  constexpr int64_t kMany = 50;
  constexpr double kTolerance = 1e-5;
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  struct Ranks {
    int world;
    std::optional<int32_t> group{};
  };
  for (const auto& [world, group] : {Ranks{1}, Ranks{2}, Ranks{3}, Ranks{4}, Ranks{4, 2}}) {
    SCOPED_TRACE(std::to_string(world) + " ranks in groups of " + std::to_string(group.value_or(world)));
    spec.fsdp.sharding_group = group;
    RoundConnector connector;
    auto ranks = StartRanks(world, [&, world = world](int rank, LineChannel&) {
      at::set_num_threads(1);
      Trainer trainer(spec, {.total_steps = kMany});
      const std::shared_ptr<comm::Communicator> communicator =
          std::move(EnterRound(connector, 1, rank, world, trainer)).value();
      const std::vector<double> losses = LossesOf(trainer, communicator, kMany);
      const auto weights = Collected(trainer, *communicator);
      REQUIRE(weights.ok());
      if (rank > 0) return 0;
      api::TrainingSpec plain = spec;
      plain.strategy = api::Strategy::kDdp;
      Trainer reference(plain, {.total_steps = kMany});
      RoundConnector alone;
      const std::vector<double> expected =
          LossesOf(reference, std::move(alone.Enter(1, 0, 1)).value(), kMany);
      for (std::size_t step = 0; step < losses.size(); ++step)
        REQUIRE(std::abs(losses[step] - expected[step]) <= kTolerance);
      for (const NamedTensor& named : reference.state().parameters)
        REQUIRE((weights->at(named.name) - named.tensor).abs().max().item<double>() <= kTolerance);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

TEST(FsdpStepper, KeepsWhatSeveralLayersUseThroughTheStep) {
  const TokenFolder folder;
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  TrainGptOn(folder, spec);
  for (const int world : {1, 3}) ExpectDdp(spec, world);
}

TEST(FsdpStepper, TrainsInHalfPrecision) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.precision = Precision::kFp16;
  ExpectDdp(spec, 1, {.loss_scale = 0x1p18});
}

// One or two ranks, so that the order of a sum over them does not matter. Kernels add up in another order where
// a weight begins elsewhere in memory, and a sum is then rounded to a neighbouring number now and then.
TEST(FsdpStepper, GivesTheStateOfDdpOfTheSameRanksIn16Bits) {
  constexpr double kRounding = 0x1p-8;  // one unit of bf16
  const TokenFolder folder;
  api::TrainingSpec convolutions = Training(api::Strategy::kFsdp);
  api::TrainingSpec transformer = convolutions;
  TrainGptOn(folder, transformer);
  for (api::TrainingSpec spec : {convolutions, transformer}) {
    for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
      spec.precision = precision;
      for (const int world : {1, 2}) {
        SCOPED_TRACE(std::string(api::NameOf(spec.model.name)) + " in " +
                     std::string(api::NameOf(precision)) + " on " + std::to_string(world) + " ranks");
        RoundConnector of_fsdp;
        RoundConnector of_ddp;
        auto ranks = StartRanks(world, [&](int rank, LineChannel&) {
          at::set_num_threads(1);
          const auto trained = [&](const api::TrainingSpec& of, RoundConnector& connector) {
            Trainer trainer(of);
            const auto communicator = std::move(EnterRound(connector, 1, rank, world, trainer)).value();
            LOCKSTEP_CHECK(trainer.Sync(*communicator).ok() && trainer.RunRound(communicator, kSteps).ok());
            return std::move(Collected(trainer, *communicator)).value();
          };
          const auto divided = trained(spec, of_fsdp);
          api::TrainingSpec plain = spec;
          plain.strategy = api::Strategy::kDdp;
          const auto whole = trained(plain, of_ddp);
          if (rank > 0) return 0;
          for (const auto& [name, tensor] : whole) {
            const double apart = (divided.at(name) - tensor).abs().max().item<double>();
            REQUIRE(apart <= kRounding * tensor.abs().max().item<double>());
          }
          return 0;
        });
        ExpectAllSucceed(ranks);
      }
    }
  }
}

TEST(FsdpStepper, SendsLinearLayersAndConvolutionsIn16BitsAndTheirGradients) {
  RoundConnector of_float;
  RoundConnector of_bf16;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    int64_t saved = 0;
    const auto given = [&](Precision precision, RoundConnector& connector) {
      api::TrainingSpec spec = Training(api::Strategy::kFsdp);
      spec.precision = precision;
      Trainer trainer(spec);
      const auto communicator = std::move(EnterRound(connector, 1, rank, 2, trainer)).value();
      LOCKSTEP_CHECK(trainer.Sync(*communicator).ok());
      const int64_t before = communicator->bytes_given();
      LOCKSTEP_CHECK(trainer.RunRound(communicator, 1).ok());
      const ShardedLayers& layers = FsdpOf(trainer).layers();
      // Two bytes of each element: gathered in both passes, but the last layer remains between them, and one
      // gradient for each of the two ranks.
      saved = 0;
      for (std::size_t layer = 0; layer < layers.layers().size(); ++layer) {
        const int64_t gatherings = layer + 1 < layers.layers().size() ? 2 : 1;
        for (const std::size_t unit : layers.UnitsOf(layer))
          saved += 2 * (gatherings + 2) * layers.PieceOf(unit, 2);
      }
      return communicator->bytes_given() - before;
    };
    const int64_t in_float = given(Precision::kFp32, of_float);
    REQUIRE(saved > 0);
    REQUIRE(in_float - given(Precision::kBf16, of_bf16) == saved);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(FsdpStepper, AddsUpMicroBatchesOfWhichRanksHaveDifferentNumbers) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.micro_batch_size = 3;
  ExpectDdp(spec, 3, {.speeds = {1, 6, 2}});
  spec.global_batch_size = 2;  // the third rank has no sample
  ExpectDdp(spec, 3);
}

TEST(FsdpStepper, LeavesOutCorruptSamplesAndSkipsStepsThatAreNotFinite) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.data.on_corrupt_record = api::OnCorruptRecord::kSkip;
  const std::vector<int64_t> corrupt = PlanOf(spec).Ids(1, 0, 11);  // all of a rank
  ExpectDdp(spec, 2, {.corrupt = corrupt});
  ExpectDdp(spec, 2, {.non_finite = PlanOf(spec).Ids(1, 10, 11)});
}

// Ranks have different numbers of batches, and each needs the layers of all.
TEST(FsdpStepper, EvaluatesTogether) {
  api::TrainingSpec spec = Training(api::Strategy::kFsdp);
  spec.evaluation = api::EvaluationSpec{.batch_size = 2};
  spec.fsdp.sharding_group = 2;
  const auto datasets = std::move(data::OpenDatasets(spec)).value();
  RoundConnector connector;
  RoundConnector alone;
  auto ranks = StartRanks(4, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    const auto evaluate = [&](const api::TrainingSpec& of, RoundConnector& round, int world,
                              const std::vector<double>& speeds, bool leaves) {
      Trainer trainer(of);
      const auto communicator = std::move(EnterRound(round, 1, rank, world, trainer)).value();
      LOCKSTEP_CHECK(trainer.Sync(*communicator).ok() && trainer.RunRound(communicator, 2).ok());
      Evaluator evaluator(of, trainer.state(), *datasets.test);
      if (leaves) {
        const auto left = evaluator.Run(*communicator, speeds, [rank] { return rank == 1; }, {});
        LOCKSTEP_CHECK(left.ok() && !left->complete);
      }
      return evaluator.Run(*communicator, speeds, [] { return false; }, {});
    };
    const auto divided = evaluate(spec, connector, 4, {1, 6, 2, 3}, true);
    REQUIRE(divided.ok() && divided->complete);
    if (rank > 0) return 0;
    api::TrainingSpec plain = spec;
    plain.strategy = api::Strategy::kDdp;
    const auto whole = evaluate(plain, alone, 1, {1}, false);
    REQUIRE(whole.ok());
    REQUIRE(std::abs(divided->loss - whole->loss) < 1e-4 && divided->accuracy == whole->accuracy);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(FsdpStepper, KeepsAPieceOfEachUnitBetweenSteps) {
  struct Case {
    int copies;
    int world;
    int group;  // ranks that share the state
  };
  for (const auto& [copies, world, group] :
       {Case{1, 1, 1}, Case{1, 2, 2}, Case{1, 3, 3}, Case{1, 4, 4}, Case{2, 4, 4}, Case{1, 4, 2}}) {
    api::TrainingSpec spec = Training(api::Strategy::kFsdp);
    spec.fsdp.copies = copies;
    if (group < world) spec.fsdp.sharding_group = group;
    RoundConnector connector;
    auto ranks =
        StartRanks(world, [&, copies = copies, world = world, group = group](int rank, LineChannel&) {
          at::set_num_threads(1);
          Trainer trainer(spec);
          auto communicator = EnterRound(connector, 1, rank, world, trainer);
          REQUIRE(communicator.ok() && trainer.Sync(**communicator).ok());
          REQUIRE(trainer.RunRound(*communicator, 2).ok());
          int64_t elements = 0;
          for (const NamedTensor& parameter : trainer.state().parameters) {
            elements += parameter.tensor.numel();
            REQUIRE(parameter.tensor.storage().nbytes() == 0);
            REQUIRE(!parameter.tensor.grad().defined());
          }
          // Parameter and two moments; each unit is cut at a multiple of 16.
          const auto units = static_cast<int64_t>(FsdpOf(trainer).layers().units());
          REQUIRE(FsdpOf(trainer).layers().held_bytes() <= 12 * copies * (elements / group + 17 * units));
          return 0;
        });
    ExpectAllSucceed(ranks);
  }
}

}  // namespace
}  // namespace lockstep::train

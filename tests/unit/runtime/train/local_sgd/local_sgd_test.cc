#include "runtime/train/local_sgd/local_sgd.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <numeric>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"
#include "tests/unit/runtime/train/used_samples.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

// SGD with momentum and without anything that is not linear in the gradient, so that means can be compared.
api::TrainingSpec Linear() {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.cnn.dropout = 0;
  spec.optimizer = {
      .name = api::OptimizerName::kSgd, .learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01};
  return spec;
}

api::TrainingSpec Local(api::TrainingSpec spec, int64_t every_steps) {
  spec.strategy = api::Strategy::kLocalsgd;
  spec.sync.every_steps = every_steps;
  return spec;
}

bool AreClose(const std::vector<NamedTensor>& some, const std::vector<NamedTensor>& others) {
  for (std::size_t i = 0; i < some.size(); ++i) {
    if (some[i].name == others[i].name && at::allclose(some[i].tensor, others[i].tensor, 1e-5, 1e-6))
      continue;
    std::fprintf(stderr, "%s differs\n", some[i].name.c_str());
    return false;
  }
  return some.size() == others.size();
}

// The bits if they are equal on all ranks, otherwise an empty text.
std::string CommonBits(std::vector<testing::ForkedProcess>& ranks) {
  std::string common;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string bits = ranks[rank].channel().Receive(kPatience).value_or("nothing");
    EXPECT_TRUE(common.empty() || bits == common) << "rank " << rank;
    common = bits;
  }
  return common;
}

TEST(LocalSgd, WithAMeanAfterEachStepLearnsWhatDdpDoes) {
  for (const std::vector<double>& speeds : {std::vector<double>{1, 1}, std::vector<double>{1, 4}}) {
    RoundConnector first;
    RoundConnector second;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      Trainer ddp(Linear(), {.speeds = speeds});
      Trainer local(Local(Linear(), 1), {.speeds = speeds});
      auto of_ddp = first.Enter(1, rank, 2);
      REQUIRE(of_ddp.ok() && ddp.RunRound(*of_ddp, Trainer::kTotalSteps).ok());
      auto of_local = second.Enter(2, rank, 2);
      REQUIRE(of_local.ok() && local.RunRound(*of_local, Trainer::kTotalSteps).ok());
      REQUIRE(AreClose(local.state().Tensors(), ddp.state().Tensors()));
      REQUIRE(local.last().all.count == ddp.last().all.count);
      REQUIRE(std::abs(local.last().loss - ddp.last().loss) < 1e-5 * ddp.last().loss);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

// The steps of a rank and the means, written out.
class Reference {
 public:
  Reference(const api::TrainingSpec& spec, const std::vector<double>& speeds)
      : spec_(spec), speeds_(speeds), data_(std::move(data::OpenDatasets(spec)).value()) {
    for (std::size_t rank = 0; rank < speeds.size(); ++rank) {
      states_.push_back(std::move(MakeTrainingState(spec, {spec.data.synthetic.shape, 3})).value());
    }
  }

  void Window(int64_t begin, int64_t end) {
    const std::vector<at::Tensor> before = Copies(*states_[0]);
    std::vector<double> samples(states_.size(), 0);
    double loss_sum = 0;
    for (int64_t step = begin; step < end; ++step) {
      for (std::size_t rank = 0; rank < states_.size(); ++rank) {
        const RankShare share =
            ShareOf(PlanOf(spec_).CountOf(step), static_cast<int>(rank), speeds_, MicroBatchPolicyOf(spec_));
        loss_sum += Step(*states_[rank], step, share.positions);
        samples[rank] += static_cast<double>(share.positions.size());
      }
    }
    const double all = std::accumulate(samples.begin(), samples.end(), 0.0);
    loss_ = loss_sum / all;
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < before.size(); ++i) {
      at::Tensor mean = at::zeros_like(before[i]);
      for (std::size_t rank = 0; rank < states_.size(); ++rank)
        mean += states_[rank]->Tensors()[i].tensor * (samples[rank] / all);
      for (const auto& state : states_) state->Tensors()[i].tensor.copy_(mean);
    }
  }

  [[nodiscard]] const TrainingState& state() const { return *states_[0]; }
  [[nodiscard]] double loss() const { return loss_; }

 private:
  static std::vector<at::Tensor> Copies(const TrainingState& state) {
    std::vector<at::Tensor> copies;
    for (const NamedTensor& named : state.Tensors()) copies.push_back(named.tensor.detach().clone());
    return copies;
  }

  // m = momentum m + g + decay p;  p = p - rate m
  double Step(TrainingState& state, int64_t step, const Slice& positions) {
    const data::Batch batch = data_.train->Get(PlanOf(spec_).Ids(step, positions.begin, positions.end));
    at::Tensor loss;
    {
      const at::AutoGradMode with_gradients(true);
      loss = state.model->LossSum(state.model->Forward(batch.inputs), batch.targets);
      loss.backward();
    }
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor>& trained = testing::ReplicatedOf(state).trained();
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const at::Tensor& parameter = trained[i];
      const at::Tensor& momentum = testing::OptimizerOf(state).state()[i].tensor;
      const at::Tensor gradient = parameter.grad() / static_cast<double>(positions.size());
      momentum.mul_(0.9).add_(gradient).add_(parameter, 0.01);
      parameter.add_(momentum, -0.05);
      parameter.mutable_grad().reset();
    }
    return loss.item<double>();
  }

  const api::TrainingSpec spec_;
  const std::vector<double> speeds_;
  const data::Datasets data_;
  std::vector<std::unique_ptr<TrainingState>> states_;
  double loss_ = 0;
};

TEST(LocalSgd, TakesTheMeanOfWhatTheRanksLearnedAlone) {
  for (const std::vector<double>& speeds : {std::vector<double>{1, 1}, std::vector<double>{2, 5}}) {
    RoundConnector connector;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      at::set_num_threads(1);
      const api::TrainingSpec spec = Local(Linear(), 4);
      Trainer trainer(spec, {.speeds = speeds});
      auto communicator = connector.Enter(1, rank, 2);
      REQUIRE(communicator.ok() && trainer.RunRound(*communicator, Trainer::kTotalSteps).ok());
      Reference reference(spec, speeds);
      reference.Window(0, 4);
      reference.Window(4, 7);
      REQUIRE(AreClose(trainer.state().Tensors(), reference.state().Tensors()));
      REQUIRE(std::abs(trainer.last().loss - reference.loss()) < 1e-5 * reference.loss());
      REQUIRE(trainer.last().steps == 3 && trainer.last().all.count == 22 + 22 + 6);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

TEST(LocalSgd, TakesAnOuterStepWhereAsked) {
  RoundConnector first;
  RoundConnector second;
  auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
    at::set_num_threads(1);
    api::TrainingSpec diloco = Local(Linear(), 4);
    diloco.sync.outer = api::OuterSpec{.learning_rate = 0.6, .momentum = 0.5};
    Trainer plain(Local(Linear(), 4));
    Trainer outer(diloco);
    const std::vector<at::Tensor> before = [&] {
      std::vector<at::Tensor> copies;
      for (const at::Tensor& tensor : plain.replicated().trained()) copies.push_back(tensor.detach().clone());
      return copies;
    }();
    auto of_plain = first.Enter(1, rank, 2);
    REQUIRE(of_plain.ok() && plain.RunRound(*of_plain, 4).ok());
    auto of_outer = second.Enter(2, rank, 2);
    REQUIRE(of_outer.ok() && outer.RunRound(*of_outer, 4).ok());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const at::Tensor change = before[i] - plain.replicated().trained()[i].detach();
      // From a momentum of zero: rate (1 + momentum) of the change.
      REQUIRE(at::allclose(outer.replicated().trained()[i], before[i] - 0.6 * 1.5 * change, 1e-5, 1e-6));
      REQUIRE(at::allclose(dynamic_cast<LocalSgdState&>(outer.state()).outer_momentum()[i].tensor, change,
                           1e-4, 1e-6));
    }
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Adam, dropout, clipping, micro-batches, an outer step, a rank without samples in the short steps.
TEST(LocalSgd, LeavesTheSameBitsOnAllRanksAfterAWindow) {
  api::TrainingSpec spec = Local(SmallTraining(api::Determinism::kNone), 3);
  spec.micro_batch_size = 2;
  spec.sync.outer = api::OuterSpec{};
  RoundConnector connector;
  auto ranks = StartRanks(7, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec);
    auto communicator = connector.Enter(1, rank, 7);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 6).ok());
    REQUIRE(trainer.last().steps == 3 && std::isfinite(trainer.last().loss));
    parent.Send(trainer.Bits());
    return 0;
  });
  EXPECT_NE(CommonBits(ranks), "nothing");
  ExpectAllSucceed(ranks);
}

TEST(LocalSgd, TakesTheLowestScaleOfFp16) {
  api::TrainingSpec spec = Local(SmallTraining(api::Determinism::kNone), 4);
  spec.precision = api::Precision::kFp16;
  spec.model.cnn.dropout = 0;
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    // Far too high on rank 1: each of its steps overflows.
    Trainer trainer(spec, {.loss_scale = rank == 0 ? 256.0 : 0x1p40});
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 4).ok());
    REQUIRE(trainer.last().skipped == (rank == 0 ? 0 : 4));
    REQUIRE(trainer.state().loss_scale.factor() == 256.0);
    REQUIRE(trainer.state().loss_scale.good_steps() == 0);
    REQUIRE(std::isfinite(trainer.last().loss));
    parent.Send(trainer.Bits());
    return 0;
  });
  EXPECT_NE(CommonBits(ranks), "nothing");
  ExpectAllSucceed(ranks);
}

// The other ranks continue, and what the rank learned in its other steps counts.
TEST(LocalSgd, SkipsAStepThatIsNotFiniteOnItsRankAlone) {
  const api::TrainingSpec spec = Local(SmallTraining(api::Determinism::kNone), 3);
  const std::vector<int64_t> non_finite = PlanOf(spec).Ids(1, 12, 13);  // rank 1's
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.non_finite = non_finite});
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 3).ok());
    REQUIRE(trainer.last().applied && trainer.last().skipped == rank);
    REQUIRE(std::isfinite(trainer.last().loss) && std::isfinite(trainer.last().gradient_norm));
    parent.Send(trainer.Bits());
    return 0;
  });
  EXPECT_NE(CommonBits(ranks), "nothing");
  ExpectAllSucceed(ranks);
}

// All of rank 1's eleven samples in the first step are corrupt, so it takes no step there.
TEST(LocalSgd, SkipsCorruptRecords) {
  const api::TrainingSpec spec = Local(SmallTraining(api::Determinism::kNone), 3);
  std::vector<int64_t> corrupt = PlanOf(spec).Ids(0, 11, 22);
  corrupt.push_back(PlanOf(spec).Ids(1, 0, 1).front());
  RoundConnector connector;
  auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.corrupt = corrupt});
    auto communicator = connector.Enter(1, rank, 2);
    REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 3).ok());
    const StepReport& report = trainer.last();
    REQUIRE(report.all.count == 38 && report.all.corrupt == 12);
    REQUIRE(report.local_corrupt == (rank == 1 ? 11 : 1));
    REQUIRE(report.applied && report.skipped == 0 && std::isfinite(report.loss));
    parent.Send(trainer.Bits());
    return 0;
  });
  EXPECT_NE(CommonBits(ranks), "nothing");
  ExpectAllSucceed(ranks);
}

TEST(LocalSgd, FailsAfterThreeStepsThatAreNotFiniteAndGoesBack) {
  const api::TrainingSpec spec = Local(SmallTraining(api::Determinism::kNone), 4);
  std::vector<int64_t> all(static_cast<std::size_t>(spec.data.synthetic.samples));
  std::iota(all.begin(), all.end(), 0);
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    Trainer trainer(spec, {.non_finite = all});
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    const std::string before = trainer.StateBytes();
    const Result<void> failed = trainer.RunRound(*communicator, 4);
    REQUIRE(!failed.ok() && failed.error().code == ErrorCode::kInvalidArgument);
    for (const char* part : {"3 steps up to step 2", "rank 0: loss, gradient of fc2.bias"}) {
      REQUIRE(failed.error().message.find(part) != std::string::npos);
    }
    REQUIRE(trainer.state().step == 0 && trainer.StateBytes() == before);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(LocalSgd, GoesBackAtOnceWhereTheRoundEndsInsideAWindow) {
  const api::TrainingSpec spec = Local(SmallTraining(api::Determinism::kNone), 4);
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int, LineChannel&) {
    at::set_num_threads(1);
    std::stop_source round_over;
    int64_t newest = 0;
    Trainer trainer(spec, {.taken = [&](int64_t steps) {
                      newest = steps;
                      if (steps == 2) round_over.request_stop();
                    }});
    auto communicator = connector.Enter(1, 0, 1);
    REQUIRE(communicator.ok());
    const std::string before = trainer.StateBytes();
    const auto strategy = MakeStrategy(spec, *communicator, trainer.replicated());
    const Result<void> left = trainer.RunRoundWith(**strategy, **communicator, 4, round_over.get_token());
    REQUIRE(!left.ok() && left.error().code == ErrorCode::kCancelled);
    REQUIRE(newest == 2);
    REQUIRE(trainer.state().step == 0 && trainer.StateBytes() == before);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Rank 1 dies after two steps of the second window. Rank 0 goes back to the end of the first window and
// repeats the second one alone. The result equals that of a run without the death in which rank 0 was alone
// from there on.
TEST(LocalSgd, NoStepCountsTwiceWhereARankDiesInsideAWindow) {
  const api::TrainingSpec spec = Local(SmallTraining(api::Determinism::kNone), 3);
  std::vector<std::string> bits;
  for (const bool dies : {false, true}) {
    const LedgerFolder folder;
    RoundConnector both;
    RoundConnector alone;
    auto ranks = StartRanks(2, [&](int rank, LineChannel& parent) {
      at::set_num_threads(1);
      bool is_second_window = false;
      Trainer trainer(spec, {.ledger_folder = folder.path(), .taken = [&](int64_t steps) {
                               if (rank == 1 && is_second_window && steps == 2) ::raise(SIGKILL);
                             }});
      auto communicator = both.Enter(1, rank, 2);
      REQUIRE(communicator.ok() && trainer.RunRound(*communicator, 3).ok());
      is_second_window = true;
      const std::string before = trainer.StateBytes();
      if (dies) {
        const Result<void> broken = trainer.RunRound(*communicator, 6);
        REQUIRE(!broken.ok() && broken.error().code == ErrorCode::kAborted);
        REQUIRE(trainer.state().step == 3 && trainer.StateBytes() == before);
      }
      if (rank == 1) return 0;
      auto after = alone.Enter(2, 0, 1);
      REQUIRE(after.ok() && trainer.RunRound(*after, 6).ok());
      parent.Send(trainer.Bits());
      return 0;
    });
    bits.push_back(ranks[0].channel().Receive(kPatience).value_or("nothing"));
    EXPECT_EQ(ranks[0].Wait(kPatience), 0);
    EXPECT_EQ(ranks[1].Wait(kPatience), dies ? 128 + SIGKILL : 0);
    ExpectEachSampleOnce(Used(folder.path()), PlanOf(spec), 6);
  }
  EXPECT_NE(bits[0], "nothing");
  EXPECT_EQ(bits[0], bits[1]);
}

}  // namespace
}  // namespace lockstep::train

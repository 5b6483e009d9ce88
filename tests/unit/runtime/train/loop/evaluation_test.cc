#include "runtime/train/loop/evaluation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train {
namespace {

using testing::ExpectAllSucceed;
using testing::kPatience;
using testing::LineChannel;
using testing::RoundConnector;
using testing::StartRanks;

constexpr int64_t kSamples = 50;
constexpr int64_t kBatch = 4;

api::TrainingSpec EvaluatedTraining() {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.data.synthetic.test_samples = kSamples;
  spec.data.prefetch = 3;
  spec.evaluation = api::EvaluationSpec{.every_epochs = 1, .batch_size = kBatch};
  return spec;
}

// Looks to the evaluation like files on a disk. Get of a sample from `held` on waits until it is released.
class SlowDataset final : public data::Dataset {
 public:
  SlowDataset(const data::Dataset& whole, int64_t held) : whole_(whole), held_(held) {}

  [[nodiscard]] int64_t size() const override { return whole_.size(); }
  [[nodiscard]] int64_t classes() const override { return whole_.classes(); }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return whole_.sample_shape(); }
  [[nodiscard]] data::Batch Get(std::span<const int64_t> ids) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ids.back() < held_; });
    used_.insert(used_.end(), ids.begin(), ids.end());
    threads_.insert(std::this_thread::get_id());
    changed_.notify_all();
    return whole_.Get(ids);
  }

  void ReleaseAll() {
    const std::lock_guard lock(mutex_);
    held_ = whole_.size();
    changed_.notify_all();
  }
  // Returns false if it does not happen in time.
  [[nodiscard]] bool AwaitUsed(std::size_t samples) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience / 10, [&] { return used_.size() >= samples; });
  }
  [[nodiscard]] std::vector<int64_t> used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  [[nodiscard]] std::set<std::thread::id> threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  const data::Dataset& whole_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  int64_t held_;
  mutable std::vector<int64_t> used_;
  mutable std::set<std::thread::id> threads_;
};

struct Expected {
  double loss = 0;
  double right = 0;
};

// Evaluates one batch after the other, without threads.
Expected SumsOf(const TrainingState& state, const data::Dataset& test, Slice share) {
  const at::NoGradGuard no_grad;
  Expected sums;
  for (const Slice& piece : MicroBatches(share, kBatch)) {
    std::vector<int64_t> ids(static_cast<std::size_t>(piece.size()));
    std::iota(ids.begin(), ids.end(), piece.begin);
    const data::Batch batch = test.Get(ids);
    const at::Tensor logits = state.model->Forward(batch.inputs);
    sums.loss += state.model->LossSum(logits, batch.targets).item<double>();
    sums.right += static_cast<double>(state.model->CountRight(logits, batch.targets));
  }
  return sums;
}

std::vector<int64_t> NumbersOf(Slice share) {
  std::vector<int64_t> numbers(static_cast<std::size_t>(share.size()));
  std::iota(numbers.begin(), numbers.end(), share.begin);
  return numbers;
}

// Each rank has its share by speed, and the sums equal those of a sequential evaluation bit for bit.
TEST(Evaluator, DividesTheSamplesBySpeedAndCountsEachOnce) {
  struct Case {
    std::vector<double> speeds;
    Slice first;
  };
  for (const Case& c : {Case{{1, 1}, {0, 25}}, Case{{3, 1}, {0, 38}}}) {
    RoundConnector connector;
    auto ranks = StartRanks(2, [&](int rank, LineChannel&) {
      const api::TrainingSpec spec = EvaluatedTraining();
      const data::Datasets datasets = data::OpenDatasets(spec).value();
      const SlowDataset test(*datasets.test, kSamples);
      const auto owned = MakeTrainingState(spec, {spec.data.synthetic.shape, 3}).value();
      TrainingState& state = *owned;
      Evaluator evaluator(spec, state, test);
      auto communicator = connector.Enter(1, rank, 2);
      REQUIRE(communicator.ok());
      const Result<Evaluation> found = evaluator.Run(**communicator, c.speeds, [] { return false; }, {});
      REQUIRE(found.ok() && found->complete);

      const std::vector<Slice> shares = {c.first, {c.first.end, kSamples}};
      REQUIRE(test.used() == NumbersOf(shares[static_cast<std::size_t>(rank)]));
      state.model->eval();
      const Expected first = SumsOf(state, *datasets.test, shares[0]);
      const Expected second = SumsOf(state, *datasets.test, shares[1]);
      REQUIRE(found->loss == (first.loss + second.loss) / kSamples);
      REQUIRE(found->accuracy == (first.right + second.right) / kSamples);
      return 0;
    });
    ExpectAllSucceed(ranks);
  }
}

// While the step thread computes, the loader's thread reads the following batches.
TEST(Evaluator, ReadsAheadOnThreadsOfItsOwn) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    const api::TrainingSpec spec = EvaluatedTraining();
    const data::Datasets datasets = data::OpenDatasets(spec).value();
    const SlowDataset test(*datasets.test, kSamples);
    const auto owned = MakeTrainingState(spec, {spec.data.synthetic.shape, 3}).value();
    TrainingState& state = *owned;
    Evaluator evaluator(spec, state, test);
    auto communicator = connector.Enter(1, rank, 1);
    REQUIRE(communicator.ok());
    bool is_ahead = true;
    int batches = 0;
    const auto between_batches = [&] {
      const int64_t ahead = std::min<int64_t>(kSamples, (batches++ + spec.data.prefetch) * kBatch);
      is_ahead = is_ahead && test.AwaitUsed(static_cast<std::size_t>(ahead));
      return !is_ahead;
    };
    REQUIRE(evaluator.Run(**communicator, std::vector<double>{1}, between_batches, {}).ok());
    REQUIRE(is_ahead);
    REQUIRE(!test.threads().contains(std::this_thread::get_id()));
    return 0;
  });
  ExpectAllSucceed(ranks);
}

// Also when it ends with an error.
TEST(Evaluator, UsesTheAverageOfTheWeightsAndGivesTheWeightsBack) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    api::TrainingSpec spec = EvaluatedTraining();
    spec.optimizer.weight_average = api::WeightAverageSpec{};
    const data::Datasets datasets = data::OpenDatasets(spec).value();
    const auto owned = MakeTrainingState(spec, {spec.data.synthetic.shape, 3}).value();
    TrainingState& state = *owned;
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> before;
    for (const NamedTensor& named : state.Tensors()) {
      if (named.name.starts_with("optimizer.average_minus_weight.")) named.tensor.fill_(0.01);
      before.push_back(named.tensor.clone());
    }
    const auto is_as_before = [&] {
      const std::vector<NamedTensor> now = state.Tensors();
      return std::equal(now.begin(), now.end(), before.begin(), before.end(),
                        [](const NamedTensor& a, const at::Tensor& b) { return a.tensor.equal(b); });
    };
    auto communicator = connector.Enter(1, rank, 1);
    REQUIRE(communicator.ok());
    SlowDataset test(*datasets.test, /*held=*/2 * kBatch);
    Evaluator evaluator(spec, state, test);
    std::stop_source round;
    int batches = 0;
    const auto stop_at_the_third = [&] {
      if (++batches == 3) round.request_stop();
      return false;
    };
    const std::vector<double> speeds = {1};
    REQUIRE(!evaluator.Run(**communicator, speeds, stop_at_the_third, round.get_token()).ok());
    REQUIRE(is_as_before());
    test.ReleaseAll();
    const auto found = evaluator.Run(**communicator, speeds, [] { return false; }, {});
    REQUIRE(found.ok() && is_as_before());
    for (const NamedTensor& named : state.parameters) named.tensor.add_(0.01);
    state.model->eval();
    REQUIRE(found->loss == SumsOf(state, *datasets.test, {0, kSamples}).loss / kSamples);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

TEST(Evaluator, DoesNotWaitForDataOnceTheRoundIsOver) {
  RoundConnector connector;
  auto ranks = StartRanks(1, [&](int rank, LineChannel&) {
    const api::TrainingSpec spec = EvaluatedTraining();
    const data::Datasets datasets = data::OpenDatasets(spec).value();
    SlowDataset test(*datasets.test, /*held=*/2 * kBatch);
    const auto owned = MakeTrainingState(spec, {spec.data.synthetic.shape, 3}).value();
    TrainingState& state = *owned;
    Evaluator evaluator(spec, state, test);
    auto communicator = connector.Enter(1, rank, 1);
    REQUIRE(communicator.ok());
    std::stop_source round;
    std::jthread control([&] {
      (void)test.AwaitUsed(2 * kBatch);
      round.request_stop();
    });
    const Result<Evaluation> found = evaluator.Run(
        **communicator, std::vector<double>{1}, [] { return false; }, round.get_token());
    REQUIRE(!found.ok() && found.error().code == ErrorCode::kCancelled);
    test.ReleaseAll();
    // The next round begins with the first sample.
    const Result<Evaluation> again =
        evaluator.Run(**communicator, std::vector<double>{1}, [] { return false; }, {});
    REQUIRE(again.ok() && again->complete);
    state.model->eval();
    REQUIRE(again->loss == SumsOf(state, *datasets.test, {0, kSamples}).loss / kSamples);
    return 0;
  });
  ExpectAllSucceed(ranks);
}

}  // namespace
}  // namespace lockstep::train

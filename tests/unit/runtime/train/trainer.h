#pragma once
// One rank of a small training over several rounds, for tests that run ranks as forked processes.

#include <algorithm>
#include <cmath>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "runtime/train/local_sgd/local_sgd.h"
#include "runtime/train/pipeline/pipeline_stepper.h"
#include "runtime/train/replicated/step_runner.h"
#include "runtime/train/replicated/strategy_choice.h"
#include "runtime/train/step/windows.h"
#include "tests/support/state_of.h"

namespace lockstep::train {

// Dropout, clipping and moments: everything in which a rank could draw or round differently. Three steps per
// epoch, the last one short.
inline api::TrainingSpec SmallTraining(api::Determinism determinism) {
  api::TrainingSpec spec;
  spec.model.name = api::ModelName::kCnn;
  spec.model.cnn = {.channels = {4}, .hidden_size = 16, .dropout = 0.5};
  spec.data.synthetic = {.samples = 50, .test_samples = 10, .shape = {1, 8, 8}, .classes = 3};
  spec.optimizer.clip_norm = 0.5;
  spec.global_batch_size = 22;
  spec.determinism = determinism;
  spec.seed = 3;
  return spec;
}

inline data::SamplePlan PlanOf(const api::TrainingSpec& spec) {
  return data::SamplePlan(
      {.size = spec.data.synthetic.samples, .global_batch = spec.global_batch_size, .seed = 3});
}

// A data set with samples that are not finite, samples that cannot be read, and corrupt ones.
class FaultyDataset final : public data::Dataset {
 public:
  FaultyDataset(const data::Dataset& whole, std::vector<int64_t> non_finite, std::vector<int64_t> unreadable,
                std::vector<int64_t> corrupt)
      : whole_(whole),
        non_finite_(std::move(non_finite)),
        unreadable_(std::move(unreadable)),
        corrupt_(std::move(corrupt)) {}

  [[nodiscard]] int64_t size() const override { return whole_.size(); }
  [[nodiscard]] int64_t classes() const override { return whole_.classes(); }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return whole_.sample_shape(); }
  [[nodiscard]] data::Batch Get(std::span<const int64_t> ids) const override {
    data::Batch batch = whole_.Get(ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (std::find(unreadable_.begin(), unreadable_.end(), ids[i]) != unreadable_.end())
        throw std::bad_alloc();
      if (std::find(non_finite_.begin(), non_finite_.end(), ids[i]) != non_finite_.end())
        batch.inputs[static_cast<int64_t>(i)].fill_(std::nan(""));
      if (std::find(corrupt_.begin(), corrupt_.end(), ids[i]) != corrupt_.end()) {
        batch.inputs[static_cast<int64_t>(i)].fill_(std::nan(""));  // using it is detected
        batch.corrupt.push_back(static_cast<int64_t>(i));
      }
    }
    return batch;
  }

 private:
  const data::Dataset& whole_;
  const std::vector<int64_t> non_finite_;
  const std::vector<int64_t> unreadable_;
  const std::vector<int64_t> corrupt_;
};

struct TrainerOptions {
  std::vector<int64_t> non_finite{};  // samples
  std::vector<int64_t> unreadable{};  // samples
  std::vector<int64_t> corrupt{};     // samples
  std::string ledger_folder{};
  std::vector<double> speeds{};  // of the ranks; equal if empty
  std::vector<at::Device> devices = {at::kCPU};
  comm::DeviceBackend* device = nullptr;
  int64_t total_steps = 7;  // kTotalSteps
  double loss_scale = 0;    // initial scale; 0: the default
  int64_t good_steps = 0;   // of that scale
  // For localsgd and async, as in StepCalls: how many steps were taken, and that the rank has finished its
  // work.
  std::function<void(int64_t steps)> taken = [](int64_t) {};
  std::function<void()> waits = [] {};
};

class Trainer {
 public:
  explicit Trainer(const api::TrainingSpec& spec, TrainerOptions options = {})
      : spec_(spec),
        datasets_(std::move(data::OpenDatasets(spec)).value()),
        dataset_(*datasets_.train, std::move(options.non_finite), std::move(options.unreadable),
                 std::move(options.corrupt)),
        samples_(std::move(data::TrainingSamples::Make(spec, dataset_)).value()),
        state_(std::move(MakeTrainingState(spec, {spec.data.synthetic.shape, 3}, options.devices)).value()),
        ledger_(std::move(options.ledger_folder), "test", clock_),
        speeds_(std::move(options.speeds)),
        taken_(std::move(options.taken)),
        waits_(std::move(options.waits)),
        total_steps_(options.total_steps),
        phases_(clock_),
        context_{spec_, samples_, total_steps_, ledger_, phases_, options.device} {
    if (api::DividesLayers(spec_.strategy) || spec_.strategy == api::Strategy::kFsdp) {
      pipeline_ = state_->MakeStepper(context_);
    } else {
      runner_ = std::make_unique<StepRunner>(context_, testing::ReplicatedOf(*state_));
      state_->step = 0;
    }
    if (TakesWindows(spec_))
      local_sgd_ = std::make_unique<LocalSgd>(context_, dynamic_cast<LocalSgdState&>(*state_), *runner_);
    if (options.loss_scale > 0) state_->loss_scale.state().front().tensor[0] = options.loss_scale;
    if (options.good_steps > 0) state_->loss_scale.state().front().tensor[1] = options.good_steps;
  }

  Result<StateSource> Sync(
      comm::Communicator& communicator,
      const Restore& restore = [](TrainingState&) { return Result<bool>(false); }) {
    return state_->Sync(communicator, restore);
  }
  Result<void> RunRound(std::shared_ptr<comm::Communicator> communicator, int64_t until_step) {
    if (pipeline_ != nullptr) return RunPipeline(std::move(communicator), until_step);
    LOCKSTEP_TRY(const auto strategy, MakeStrategy(spec_, communicator, replicated()));
    return RunRoundWith(*strategy, *communicator, until_step);
  }
  // Must be called before its communicator is closed if there are graphs.
  void LeaveRound() { runner_->LeaveRound(); }
  Result<void> RunRoundWith(parallel::Strategy& strategy, comm::Communicator& communicator,
                            int64_t until_step, const std::stop_token& stop = {}) {
    ledger_.EnterRound(communicator.place().round, communicator.rank());
    std::vector<double> speeds = speeds_;
    speeds.resize(static_cast<std::size_t>(communicator.world()), 1);
    const bool is_new = std::exchange(round_, communicator.place().round) != communicator.place().round;
    if (is_new && local_sgd_ != nullptr) local_sgd_->EnterRound(communicator);
    if (spec_.strategy != api::Strategy::kAsync)
      runner_->SetShares(communicator.rank(), std::move(speeds), total_steps_);
    const Windows windows(spec_, {}, samples_.plan().steps_per_epoch(), until_step);
    while (state_->step < until_step) {
      const int64_t end = windows.EndAfter(state_->step);
      LOCKSTEP_TRY(last_, local_sgd_ != nullptr ? local_sgd_->Run(communicator, strategy, end, Calls(), stop)
                                                : runner_->Run(communicator, strategy, {}, stop));
    }
    return {};
  }

  // For pipeline, hybrid and fsdp, after Sync.
  Result<void> RunPipeline(std::shared_ptr<comm::Communicator> communicator, int64_t until_step) {
    ledger_.EnterRound(communicator->place().round, communicator->rank());
    std::vector<double> speeds = speeds_;
    speeds.resize(static_cast<std::size_t>(communicator->world()), 1);
    LOCKSTEP_TRY(pipeline_->EnterRound(std::move(communicator)));
    pipeline_->Share(std::move(speeds), total_steps_);
    while (state_->step < until_step) {
      LOCKSTEP_TRY(last_, pipeline_->Run(state_->step + 1, Calls(), {}));
    }
    pipeline_->ForgetRound();
    return {};
  }

  [[nodiscard]] const data::TrainingSamples& samples() const { return samples_; }
  [[nodiscard]] TrainingState& state() { return *state_; }
  [[nodiscard]] const TrainingState& state() const { return *state_; }
  // Not for pipeline and hybrid.
  [[nodiscard]] const ReplicatedModel& replicated() const { return testing::ReplicatedOf(state()); }
  [[nodiscard]] const StepReport& last() const { return last_; }
  // Of parameters, moments (unless they are sharded) and the loss scale.
  [[nodiscard]] std::string StateBytes() const { return BytesOf(state_->Replicated()); }
  [[nodiscard]] std::string WeightBytes() const { return BytesOf(state_->parameters); }
  // Includes the newest loss; as a short text.
  [[nodiscard]] std::string Bits() const {
    const std::string loss(reinterpret_cast<const char*>(&last_.loss), sizeof last_.loss);
    return std::to_string(std::hash<std::string>{}(loss + StateBytes()));
  }

  static constexpr int64_t kTotalSteps = 7;

 private:
  [[nodiscard]] StepCalls Calls() const {
    return {.requests = [] { return Requests{}; },
            .begins = [this](int64_t, int64_t taken) { taken_(taken); },
            .waits = waits_};
  }
  static std::string BytesOf(const std::vector<NamedTensor>& tensors) {
    std::string bytes;
    for (const NamedTensor& named : tensors)
      bytes.append(static_cast<const char*>(named.tensor.const_data_ptr()), named.tensor.nbytes());
    return bytes;
  }

  const SystemClock clock_;
  const api::TrainingSpec spec_;
  const data::Datasets datasets_;
  const FaultyDataset dataset_;
  const data::TrainingSamples samples_;
  const std::unique_ptr<TrainingState> state_;
  SampleLedger ledger_;
  const std::vector<double> speeds_;
  const std::function<void(int64_t)> taken_;
  const std::function<void()> waits_;
  const int64_t total_steps_;
  PhaseClock phases_;
  const StepContext context_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<LocalSgd> local_sgd_;  // for localsgd and async
  std::unique_ptr<Stepper> pipeline_;    // for pipeline, hybrid and fsdp, instead of the runner
  StepReport last_;
  int64_t round_ = 0;
};

}  // namespace lockstep::train

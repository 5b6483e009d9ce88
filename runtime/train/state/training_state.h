#pragma once
// What a step changes: completed steps, parameters, buffers and optimizer state. Everything else (position in
// the data, learning rate, random numbers) is a function of the step.
//
// Each strategy holds the state in its own way, which only the classes below and their steppers know:
//
//   ReplicatedState   every rank holds all of it (ddp, dataparallel, modelparallel)
//   LocalSgdState     the same, and ranks differ between two averages (localsgd, async)
//   Zero1State        every rank holds the model, and a part of the optimizer's state (zero1)
//   FsdpState         every rank holds a part of the elements of model and optimizer (fsdp)
//   PipelineState     every rank holds some layers of the model, and their optimizer's state (pipeline, hybrid)
//
// make_training_state.h chooses. The loop, saves, restore, evaluation and stopping use this interface. Step
// thread. Errors of all methods: kAborted if the round broke, kInternal if LibTorch failed, for example for
// lack of memory.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/models/model.h"
#include "runtime/train/state/early_stop.h"
#include "runtime/train/state/state_memory.h"
#include "runtime/train/step/batch_math.h"
#include "runtime/train/step/loss_scale.h"
#include "runtime/train/step/optimizer.h"
#include "runtime/train/step/stepper.h"

namespace lockstep::train {

class PartToLoad;
class TrainingState;

// Of all elements, also of tensors without data.
[[nodiscard]] int64_t BytesOf(const std::vector<NamedTensor>& tensors);

// From where a rank has its state after Sync.
enum class StateSource { kKept, kPeer, kCopy, kCheckpoint, kFresh };
[[nodiscard]] std::string_view NameOf(StateSource source);

// Loads a stored state into `state` (see RestoreTogether). Returns false if `state` is that before the first
// step; a torn state has been initialised again then. All ranks call it, and only if they do not hold a
// complete state together.
using Restore = std::function<Result<bool>(TrainingState& state)>;

// What a rank stores of a checkpoint.
struct PartToSave {
  // Everything that the checkpoint contains, as TrainingState::Tensors, with data for what this rank stores.
  std::vector<NamedTensor> tensors;
  std::vector<int> writers{};  // the rank that stores each; empty: checkpoint::DivideTensors decides
};

// What a rank is to load of a checkpoint.
struct LoadRequest {
  int rank = 0;
  int world = 1;
  bool only_weights = false;    // the optimizer is reset to its state before the first step
  bool has_average = true;      // else the average of the weights begins as the weights
  bool has_loss_scale = false;  // else the loss scale keeps its value: the precision may have changed
};

// The part of a rank in an evaluation.
struct PartToEvaluate {
  Slice samples;        // of the test set
  bool reads = true;    // it needs the samples
  bool decides = true;  // it may end the evaluation early
  bool scores = true;   // it gets the outputs of the model
  // All ranks make so many turns together, and those without a batch left pass empty inputs; absent: this
  // rank evaluates its batches alone.
  std::optional<int64_t> turns{};
};

struct StateInputs {
  const api::TrainingSpec& spec;
  const ModelInput& input;
  // Of this process; the state is on the first, with modelparallel on all.
  std::span<const at::Device> devices;
  int ranks_in_pod = 1;  // copies of a part are kept in other pods
};

class TrainingState {
 public:
  explicit TrainingState(const StateInputs& inputs)
      : device(inputs.devices.front()),
        input(inputs.input),
        loss_scale(inputs.spec.precision, inputs.spec.global_batch_size),
        spec_(inputs.spec) {}
  virtual ~TrainingState() = default;
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  // Must be called once, before all else. Errors name the field.
  [[nodiscard]] virtual Result<void> Build() = 0;

  // Completed steps; -1: training cannot continue from it, because it is freshly made or torn.
  int64_t step = -1;
  bool is_torn = false;          // see Tear
  EvaluationRecord evaluations;  // up to this step
  // Of all tensors but the loss scale; with modelparallel of the first layer, whose inputs are the samples.
  const at::Device device;
  const ModelInput input;        // the input that the model was made for
  std::shared_ptr<Model> model;  // shared_ptr by torch::nn::Module's design
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  LossScale loss_scale;

  // Everything that a checkpoint contains, in the same order in every process. Tensors that this rank does
  // not hold have no data.
  [[nodiscard]] virtual std::vector<NamedTensor> Tensors() const = 0;
  // The subset that every rank holds completely.
  [[nodiscard]] virtual std::vector<NamedTensor> Replicated() const = 0;
  // The names of parameters and buffers.
  [[nodiscard]] std::set<std::string> WeightNames() const;
  // Whether the model of this rank can be computed without the other ranks.
  [[nodiscard]] virtual bool has_whole_model() const { return true; }

  // Of the rank that needs most in a step of a round of that size.
  [[nodiscard]] virtual StateMemory Memory(int world) const = 0;

  // How many neighbouring ranks of a round of that size need a communicator of their own, a divisor of it; 0:
  // none do.
  [[nodiscard]] virtual int SubgroupOf(int /*world*/) const { return 0; }

  // All ranks of a new round call it. Afterwards the ranks hold one complete state (step >= 0), each what it
  // needs for its position in the round. Any other error comes from `restore`.
  [[nodiscard]] virtual Result<StateSource> Sync(comm::Communicator& communicator,
                                                 const Restore& restore) = 0;
  // All ranks call it before an evaluation or a save: running statistics become equal where ranks hold the
  // same ones.
  [[nodiscard]] virtual Result<void> SyncBuffers(comm::Communicator& communicator) = 0;
  // Resets the state to that before the first step.
  [[nodiscard]] virtual Result<void> StartAfresh() = 0;
  // Takes the steps. The state and the context must outlive it.
  [[nodiscard]] virtual std::unique_ptr<Stepper> MakeStepper(const StepContext& context) = 0;

  // All ranks call it together, after SyncBuffers.
  [[nodiscard]] virtual Result<PartToSave> Save(comm::Communicator& communicator) = 0;
  // The whole state, from this rank alone. kNotFound if it does not hold all of it.
  [[nodiscard]] virtual Result<std::vector<NamedTensor>> Whole() const = 0;
  // Throws what LibTorch throws, for example for lack of memory. The state is torn afterwards if the part is
  // read directly into it.
  [[nodiscard]] virtual std::unique_ptr<PartToLoad> Load(const LoadRequest& request) = 0;

  // Whether a rank may hold what no other rank holds, so that those which leave hand it over.
  [[nodiscard]] bool is_divided() const { return api::DividesState(spec_.strategy); }
  // Whether this rank holds some of what is divided, but not all of it.
  [[nodiscard]] virtual bool holds_a_part() const { return false; }
  // All ranks of the round call it with the same `stays`, of which some are true and some are not. Afterwards
  // those that leave may end, because the others hold their parts.
  [[nodiscard]] virtual Result<void> HandOver(comm::Communicator& /*communicator*/,
                                              const std::vector<bool>& /*stays*/) {
    return {};
  }

  // Whether copies in memory are due after this step, after which a checkpoint may be stored.
  [[nodiscard]] virtual bool CopyIsDue(bool /*is_saved*/) const { return false; }
  // All ranks call it together: each keeps a copy of its part and of another rank's.
  [[nodiscard]] virtual Result<void> Copy(comm::Communicator& /*communicator*/) { return {}; }

  // `speeds` has one entry per rank of the round.
  [[nodiscard]] virtual PartToEvaluate PartOfEvaluation(int64_t samples, int rank,
                                                        std::span<const double> speeds) const;
  // The outputs of the model for a batch; undefined where this rank gets none. Undefined inputs of a rank
  // that decides end the evaluation of all that take part in it. Where all make turns together, empty inputs
  // give empty outputs.
  [[nodiscard]] virtual Result<at::Tensor> Evaluate(comm::Communicator& communicator,
                                                    const at::Tensor& inputs);

  // All ranks call it together. The weights that this rank evaluates with, and their averages; empty without
  // spec.training.optimizer.weightAverage.
  [[nodiscard]] virtual Result<std::vector<WeightAndAverage>> Averages(
      comm::Communicator& /*communicator*/) const {
    return std::vector<WeightAndAverage>();
  }

  // Must be called before another state is written over this one piece by piece: from then on it is a
  // mixture, has step -1 and is not a fresh state either. Complete ends that.
  virtual void Tear();
  void Complete(int64_t completed_steps);

 protected:
  [[nodiscard]] const api::TrainingSpec& spec() const { return spec_; }
  // A model on the CPU, in its state before the first step. FreshModelAgain: the spec has made it before, so
  // a failure has another reason than the spec, for example lack of memory.
  [[nodiscard]] Result<std::shared_ptr<Model>> FreshModel() const;
  [[nodiscard]] Result<std::shared_ptr<Model>> FreshModelAgain() const;
  // Sets `model` and lists its tensors.
  void TakeModel(std::shared_ptr<Model> made);

 private:
  const api::TrainingSpec spec_;
};

}  // namespace lockstep::train

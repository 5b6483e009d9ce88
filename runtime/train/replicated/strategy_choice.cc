#include "runtime/train/replicated/strategy_choice.h"

#include "runtime/parallel/data_parallel.h"
#include "runtime/parallel/deterministic_data_parallel.h"
#include "runtime/parallel/local_gradients.h"
#include "runtime/parallel/replica_gradients.h"
#include "runtime/train/step/windows.h"

namespace lockstep::train {

namespace {

parallel::GradientFormat FormatOf(const api::TrainingSpec& spec) {
  const auto samples = static_cast<double>(spec.global_batch_size);
  if (!spec.sync.compression) return {};
  switch (*spec.sync.compression) {
    case api::Compression::kBf16: return {at::kBFloat16, samples};
    case api::Compression::kFp16: return {at::kHalf, samples};
  }
  return {};
}

std::vector<std::vector<at::Tensor>> ParametersOf(const std::vector<Replica>& replicas) {
  std::vector<std::vector<at::Tensor>> parameters;
  parameters.reserve(replicas.size());
  for (const Replica& replica : replicas) parameters.push_back(replica.parameters);
  return parameters;
}

}  // namespace

Result<std::unique_ptr<parallel::Strategy>> MakeStrategy(const api::TrainingSpec& spec,
                                                         std::shared_ptr<comm::Communicator> communicator,
                                                         const ReplicatedModel& state) {
  if (api::TakesAllDevices(spec.strategy) && communicator->world() > 1) {
    return Error{
        ErrorCode::kInvalidArgument,
        "spec.training.strategy: " + std::string(api::NameOf(spec.strategy)) +
            " is one process on all of its devices, and there are " + std::to_string(communicator->world()) +
            " ranks; make it one (spec.worker.replicas, spec.nprocPerNode), or use ddp, pipeline or hybrid"};
  }
  if (state.replicas().size() > 1) return parallel::MakeReplicaGradients(ParametersOf(state.replicas()));
  if (TakesWindows(spec)) return parallel::MakeLocalGradients(state.trained());
  if (spec.determinism == api::Determinism::kNone) {
    const parallel::GradientFormat format = FormatOf(spec);
    // In a world of one, the local gradients are the sum already, unless rounding to a 16-bit format is
    // requested.
    if (communicator->world() == 1 && format.type == at::kFloat)
      return parallel::MakeLocalGradients(state.trained());
    return parallel::MakeDataParallel(std::move(communicator), state.trained(), format);
  }
  // Running statistics depend on which samples a rank gets, and on their order.
  if (!state.buffers.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "spec.training.determinism: World cannot keep " + state.buffers.front().name +
                     " equal, which changes outside of the gradients; use None, or a model without running "
                     "statistics"};
  }
  return parallel::MakeDeterministicDataParallel(std::move(communicator), state.trained());
}

}  // namespace lockstep::train

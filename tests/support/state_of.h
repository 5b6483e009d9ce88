#pragma once
// What a test needs of a training state that only one strategy has. The state must be of that strategy.

#include "runtime/train/fsdp/fsdp_state.h"
#include "runtime/train/local_sgd/local_sgd_state.h"
#include "runtime/train/make_training_state.h"
#include "runtime/train/pipeline/pipeline_state.h"
#include "runtime/train/zero1/zero1_state.h"

namespace lockstep::testing {

inline train::ReplicatedModel& ReplicatedOf(train::TrainingState& state) {
  return dynamic_cast<train::ReplicatedModel&>(state);
}
inline const train::ReplicatedModel& ReplicatedOf(const train::TrainingState& state) {
  return dynamic_cast<const train::ReplicatedModel&>(state);
}
inline const train::Optimizer& OptimizerOf(const train::TrainingState& state) {
  return dynamic_cast<const train::ReplicatedState&>(state).optimizer();
}
inline train::ShardedLayers& LayersOf(train::TrainingState& state) {
  return dynamic_cast<train::FsdpState&>(state).layers();
}
inline train::ShardedOptimizer& ShardsOf(train::TrainingState& state) {
  return dynamic_cast<train::Zero1State&>(state).shards();
}
inline train::StagedState& StagesOf(train::TrainingState& state) {
  return dynamic_cast<train::PipelineState&>(state).stages();
}

}  // namespace lockstep::testing

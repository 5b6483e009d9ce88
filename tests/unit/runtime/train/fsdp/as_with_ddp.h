#pragma once
// A small training with strategy fsdp, and its comparison with what `ddp` gives on one rank.

#include <ATen/ATen.h>

#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/train/fsdp/fsdp_state.h"
#include "tests/support/forked_ranks.h"
#include "tests/unit/runtime/train/trainer.h"

namespace lockstep::train::as_with_ddp {

inline constexpr int64_t kSteps = Trainer::kTotalSteps;

inline api::TrainingSpec Training(api::Strategy strategy) {
  api::TrainingSpec spec = SmallTraining(api::Determinism::kNone);
  spec.model.cnn.dropout = 0;  // drawn by shares, which differ between worlds
  spec.strategy = strategy;
  return spec;
}

inline FsdpState& FsdpOf(Trainer& trainer) { return dynamic_cast<FsdpState&>(trainer.state()); }

// Of a round, with the groups that the spec wants.
inline Result<std::shared_ptr<comm::Communicator>> EnterRound(testing::RoundConnector& connector,
                                                              int64_t round, int rank, int world,
                                                              const Trainer& trainer) {
  return connector.EnterWithSubgroups(round, rank, world, trainer.state().SubgroupOf(world));
}

// The whole state, collected on rank 0: tensors by name.
inline Result<std::map<std::string, at::Tensor>> Collected(Trainer& trainer,
                                                           comm::Communicator& communicator) {
  std::map<std::string, at::Tensor> all;
  if (trainer.state().has_whole_model()) {
    for (const NamedTensor& named : trainer.state().Tensors()) all[named.name] = named.tensor;
    return all;
  }
  const FsdpState& state = FsdpOf(trainer);
  const std::vector<int> to_first(state.layers().described().size(), 0);
  LOCKSTEP_TRY(const auto divided, state.layers().Collect(communicator, to_first));
  for (const NamedTensor& named : divided) all[named.name] = named.tensor;
  for (const NamedTensor& named : state.Replicated()) all[named.name] = named.tensor;
  return all;
}

// What `ddp` gives on one rank.
inline std::map<std::string, at::Tensor> Reference(const api::TrainingSpec& spec, int64_t steps,
                                                   const TrainerOptions& options, StepReport& last) {
  Trainer trainer(spec, options);
  testing::RoundConnector alone;
  const auto communicator = std::move(alone.Enter(1, 0, 1)).value();
  LOCKSTEP_CHECK(trainer.Sync(*communicator).ok() && trainer.RunRound(communicator, steps).ok());
  last = trainer.last();
  std::map<std::string, at::Tensor> all;
  for (const NamedTensor& named : trainer.state().Tensors()) all[named.name] = named.tensor;
  return all;
}

// Whether the state of all ranks, and the newest report, are those of `ddp` after as many steps.
inline bool IsAsWithDdp(api::TrainingSpec spec, Trainer& trainer, comm::Communicator& communicator,
                        const TrainerOptions& options = {}) {
  const auto mine = Collected(trainer, communicator);
  if (!mine.ok()) return false;
  if (communicator.rank() > 0) return true;
  spec.strategy = api::Strategy::kDdp;
  StepReport last;
  const auto reference = Reference(spec, trainer.state().step, options, last);
  bool same = mine->size() == reference.size();
  for (const auto& [name, tensor] : reference) {
    const auto found = mine->find(name);
    if (found == mine->end() || !at::allclose(found->second, tensor, 1e-4, 1e-5)) {
      std::cerr << name << " differs\n";
      same = false;
    }
  }
  if (std::abs(last.loss - trainer.last().loss) > 1e-5 * std::abs(last.loss) ||
      std::abs(last.gradient_norm - trainer.last().gradient_norm) > 1e-4 * last.gradient_norm) {
    std::cerr << "loss " << trainer.last().loss << " instead of " << last.loss << ", norm "
              << trainer.last().gradient_norm << " instead of " << last.gradient_norm << "\n";
    same = false;
  }
  return same;
}

}  // namespace lockstep::train::as_with_ddp

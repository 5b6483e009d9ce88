#pragma once
// The memory tier of the strategies pipeline and hybrid (spec.training.pipeline.copyEverySteps): each rank
// keeps its stage as it was after some step in host memory, and that of a rank in another pod. What is lost
// with a rank is then gone on from without the store (Wang et al., "GEMINI: Fast Failure Recovery in
// Distributed Training with In-Memory Checkpoints", SOSP 2023). Step thread.

#include <deque>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/train/early_stop.h"
#include "runtime/train/staged_state.h"

namespace lockstep::train {

// What all ranks know alike of the state after a step.
struct StepFacts {
  Version version;
  EvaluationRecord evaluations;
  double loss_scale = 1;
  int64_t good_steps = 0;
  StepEnd end;  // of the step that made the version
};

struct StageCopy {
  StepFacts facts;
  std::vector<bool> layers;         // of both stages
  std::vector<at::Tensor> tensors;  // in the order of StagedState::tensors(); undefined: in neither
};

class StageCopies {
 public:
  // While one is made, the one before stays: a rank that dies meanwhile may take this one with it.
  static constexpr std::size_t kMost = 2;

  // On all ranks of a round, after the same step. `pod`: ranks of a pod. Nothing where there is one rank.
  // kAborted: the round broke; kInternal: no memory for it, say.
  [[nodiscard]] Result<void> Take(comm::Communicator& communicator, const StagedState& staged,
                                  const StepFacts& facts, int pod);

  // Newest first.
  [[nodiscard]] const std::deque<StageCopy>& kept() const { return kept_; }
  // Null: this rank has none of that version.
  [[nodiscard]] const StageCopy* Find(const Version& version) const;

 private:
  std::deque<StageCopy> kept_;
};

}  // namespace lockstep::train

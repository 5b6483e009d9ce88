#pragma once
// In-memory copies for the strategies pipeline and hybrid (spec.training.pipeline.copyEverySteps): each rank
// keeps its own stage and that of a rank in another pod, as they were after some step, in host memory.
// Training continues from them after the loss of a rank, without the store (Wang et al., "GEMINI: Fast
// Failure Recovery in Distributed Training with In-Memory Checkpoints", SOSP 2023). Step thread.

#include <deque>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/train/pipeline/staged_state.h"
#include "runtime/train/state/step_facts.h"

namespace lockstep::train {

struct StageCopy {
  StepFacts facts;
  std::vector<bool> layers;  // of both stages
  // In the order of StagedState::tensors(); undefined: part of neither stage.
  std::vector<at::Tensor> tensors;
};

class StageCopies {
 public:
  // The previous copy is kept while a new one is made, because a rank that dies meanwhile may destroy the new
  // one.
  static constexpr std::size_t kMost = 2;

  // All ranks of a round call this after the same step. `pod` is the number of ranks per pod. Does nothing if
  // there is one rank. kAborted: the round broke. kInternal: for example lack of memory.
  [[nodiscard]] Result<void> Take(comm::Communicator& communicator, const StagedState& staged,
                                  const StepFacts& facts, int pod);

  // Newest first.
  [[nodiscard]] const std::deque<StageCopy>& kept() const { return kept_; }
  // Null: this rank has no copy of that version.
  [[nodiscard]] const StageCopy* Find(const Version& version) const;

 private:
  std::deque<StageCopy> kept_;
};

}  // namespace lockstep::train

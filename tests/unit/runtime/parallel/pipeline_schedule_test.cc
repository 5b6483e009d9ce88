#include "runtime/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace lockstep::parallel {
namespace {

constexpr int kMostStages = 8;
constexpr int kMostMicroBatches = 12;

using Plan = std::vector<std::vector<PipelineMove>>;  // by stage

Plan PlanOf(int stages, int micro_batches) {
  Plan plan;
  for (int stage = 0; stage < stages; ++stage)
    plan.push_back(OneForwardOneBackward(stage, stages, micro_batches));
  return plan;
}

// The neighbour's move that must happen at the same time; -1: none.
int PartnerOf(PipelineAction action, int stage) {
  switch (action) {
    case PipelineAction::kSendActivation:
    case PipelineAction::kReceiveGradient: return stage + 1;
    case PipelineAction::kSendGradient:
    case PipelineAction::kReceiveActivation: return stage - 1;
    default: return -1;
  }
}

PipelineAction AnswerTo(PipelineAction action) {
  switch (action) {
    case PipelineAction::kSendActivation: return PipelineAction::kReceiveActivation;
    case PipelineAction::kReceiveActivation: return PipelineAction::kSendActivation;
    case PipelineAction::kSendGradient: return PipelineAction::kReceiveGradient;
    default: return PipelineAction::kSendGradient;
  }
}

// Runs all stages; a send waits until the other side receives. Returns false on a deadlock.
bool Completes(const Plan& plan) {
  std::vector<std::size_t> next(plan.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < plan.size(); ++stage) {
      while (next[stage] < plan[stage].size()) {
        const PipelineMove& move = plan[stage][next[stage]];
        const int partner = PartnerOf(move.action, static_cast<int>(stage));
        if (partner >= 0) {
          const auto other = static_cast<std::size_t>(partner);
          if (other >= plan.size() || next[other] == plan[other].size()) break;
          if (plan[other][next[other]] != PipelineMove{AnswerTo(move.action), move.micro_batch}) break;
          ++next[other];
        }
        ++next[stage];
        moved = true;
      }
    }
  }
  for (std::size_t stage = 0; stage < plan.size(); ++stage) {
    if (next[stage] != plan[stage].size()) return false;
  }
  return true;
}

template <typename Check>
void ForAllSizes(Check&& check) {
  for (int stages = 1; stages <= kMostStages; ++stages) {
    for (int micro_batches = 0; micro_batches <= kMostMicroBatches; ++micro_batches) {
      SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(micro_batches) + " micro-batches");
      check(stages, micro_batches);
    }
  }
}

TEST(OneForwardOneBackward, NeverWaitsForEver) {
  ForAllSizes([](int stages, int micro_batches) { EXPECT_TRUE(Completes(PlanOf(stages, micro_batches))); });
}

TEST(OneForwardOneBackward, MakesEachPassOnceAndInOrder) {
  ForAllSizes([](int stages, int micro_batches) {
    for (int stage = 0; stage < stages; ++stage) {
      int forwards = 0;
      int backwards = 0;
      for (const PipelineMove& move : OneForwardOneBackward(stage, stages, micro_batches)) {
        if (move.action == PipelineAction::kForward) {
          EXPECT_EQ(move.micro_batch, forwards++);
        }
        if (move.action != PipelineAction::kBackward) continue;
        EXPECT_EQ(move.micro_batch, backwards++);
        EXPECT_LE(backwards, forwards);
      }
      EXPECT_EQ(forwards, micro_batches);
      EXPECT_EQ(backwards, micro_batches);
    }
  });
}

TEST(OneForwardOneBackward, KeepsNoMoreActivationsThanStagesFollow) {
  ForAllSizes([](int stages, int micro_batches) {
    for (int stage = 0; stage < stages; ++stage) {
      int kept = 0;
      for (const PipelineMove& move : OneForwardOneBackward(stage, stages, micro_batches)) {
        if (move.action == PipelineAction::kForward) ++kept;
        EXPECT_LE(kept, stages - stage);
        if (move.action == PipelineAction::kBackward) --kept;
      }
    }
  });
}

TEST(OneForwardOneBackward, SendsNothingBeyondTheEnds) {
  for (const PipelineMove& move : OneForwardOneBackward(0, 1, 3)) {
    EXPECT_TRUE(move.action == PipelineAction::kForward || move.action == PipelineAction::kBackward);
  }
}

}  // namespace
}  // namespace lockstep::parallel

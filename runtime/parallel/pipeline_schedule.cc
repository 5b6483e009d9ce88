#include "runtime/parallel/pipeline_schedule.h"

#include <algorithm>

namespace lockstep::parallel {
namespace {

class Moves {
 public:
  Moves(int stage, int stages)
      : is_first_(stage == 0), is_last_(stage + 1 == stages), sends_first_(stage % 2 == 0) {}

  void Compute(PipelineAction action, int micro_batch) { moves_.push_back({action, micro_batch}); }
  void ReceiveActivation(int micro_batch) {
    if (!is_first_) moves_.push_back({PipelineAction::kReceiveActivation, micro_batch});
  }
  void SendActivation(int micro_batch) {
    if (!is_last_) moves_.push_back({PipelineAction::kSendActivation, micro_batch});
  }
  void ReceiveGradient(int micro_batch) {
    if (!is_last_) moves_.push_back({PipelineAction::kReceiveGradient, micro_batch});
  }
  void SendGradient(int micro_batch) {
    if (!is_first_) moves_.push_back({PipelineAction::kSendGradient, micro_batch});
  }
  void WithNext(int sent, int received) {
    if (sends_first_) SendActivation(sent);
    ReceiveGradient(received);
    if (!sends_first_) SendActivation(sent);
  }
  void WithPrevious(int sent, int received) {
    if (sends_first_) SendGradient(sent);
    ReceiveActivation(received);
    if (!sends_first_) SendGradient(sent);
  }
  [[nodiscard]] const std::vector<PipelineMove>& all() const { return moves_; }

 private:
  const bool is_first_;
  const bool is_last_;
  const bool sends_first_;
  std::vector<PipelineMove> moves_;
};

}  // namespace

std::vector<PipelineMove> OneForwardOneBackward(int stage, int stages, int micro_batches) {
  Moves moves(stage, stages);
  // Forward passes before the first gradient can arrive.
  const int ahead = std::min(stages - 1 - stage, micro_batches);
  for (int i = 0; i < ahead; ++i) {
    moves.ReceiveActivation(i);
    moves.Compute(PipelineAction::kForward, i);
    moves.SendActivation(i);
  }
  if (ahead < micro_batches) moves.ReceiveActivation(ahead);
  for (int forward = ahead; forward < micro_batches; ++forward) {
    const int backward = forward - ahead;
    moves.Compute(PipelineAction::kForward, forward);
    moves.WithNext(forward, backward);
    moves.Compute(PipelineAction::kBackward, backward);
    if (forward + 1 < micro_batches) {
      moves.WithPrevious(backward, forward + 1);
    } else {
      moves.SendGradient(backward);
    }
  }
  for (int backward = micro_batches - ahead; backward < micro_batches; ++backward) {
    moves.ReceiveGradient(backward);
    moves.Compute(PipelineAction::kBackward, backward);
    moves.SendGradient(backward);
  }
  return moves.all();
}

}  // namespace lockstep::parallel

#pragma once
// `training.cudaGraph`: the passes of a step, from a micro-batch's forward pass to the last sum of gradients
// over the ranks, recorded once and then replayed by the device alone (comm/device_graph.h; for training:
// https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs). The optimizer is not in it: it must not
// begin before the host knows that the sums are good.
//
// A graph has one place in memory for its batch, its loss and its gradients, and one shape of each. So steps
// are told apart by the sizes of their micro-batches; the first of a round, and those of an uncommon kind,
// are taken pass by pass. Graphs are of one round, as they sum in its group. Step thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/device_group.h"
#include "runtime/data/dataset.h"
#include "runtime/train/batch_math.h"

namespace lockstep::train {

class StepGraphs {
 public:
  // The thread's work leaves the device's default stream.
  StepGraphs(comm::DeviceBackend& device, std::vector<at::Tensor> trained);
  ~StepGraphs();

  enum class Way { kPassByPass, kRecord, kReplay };
  // How a step of these micro-batches is to be taken, whose losses are multiplied by `factor`; the next calls
  // are about it. For kReplay the strategy is left alone: gradients are where the graphs put them.
  [[nodiscard]] Way Begin(comm::Communicator& round, const std::vector<Slice>& pieces, double factor);

  // The forward and backward pass of a batch, without waiting for the device; its loss.
  using Pass = std::function<Result<at::Tensor>(const data::Batch& batch)>;
  // Queues the pass over the next micro-batch, with the device's generator as it is now: the loss, which has
  // its value when the step is over. `pass` is called in order to record it only, with the batch on the
  // device. Where it cannot be recorded the step is lost, kInternal; where that comes again, steps are taken
  // pass by pass from then on, with a warning.
  [[nodiscard]] Result<at::Tensor> Take(const data::Batch& batch, const Pass& pass);
  // After the last micro-batch, until its sums are known to be good on this machine. kAborted: the round
  // broke.
  [[nodiscard]] Result<void> Await();
  // On the device, as what is recorded reads it.
  [[nodiscard]] const at::Tensor& factor() const { return factor_; }

  // Of all that is recorded: before the round's group is closed, which waits for its graphs.
  void Forget();

 private:
  struct RecordedPass;
  struct RecordedStep;
  Result<void> Record(const data::Batch& batch, const Pass& pass);
  Error CannotBeRecorded(const Error& error);

  comm::DeviceBackend& device_;
  std::vector<at::Tensor> trained_;
  const at::Tensor factor_;
  std::vector<std::unique_ptr<RecordedStep>> steps_;
  int64_t steps_of_round_ = 0;
  int failures_ = 0;  // in a row, of this process
  comm::Communicator* round_ = nullptr;
  RecordedStep* current_ = nullptr;
  std::size_t next_pass_ = 0;
};

}  // namespace lockstep::train

#pragma once
// `training.cudaGraph`: records the passes of a step, from a micro-batch's forward pass to the last gradient
// sum over the ranks, once, and then replays them on the device (comm/device_graph.h;
// https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs). The optimizer is not part of the graph: it
// must not begin before the host knows that the sums are good.
//
// A graph has a fixed memory location and shape for its batch, loss and gradients. So there is one graph per
// combination of micro-batch sizes; the first step of a round, and steps of a rare combination, run pass by
// pass. Graphs belong to one round, because they use its process group. Step thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/device_group.h"
#include "runtime/data/dataset.h"
#include "runtime/train/step/batch_math.h"

namespace lockstep::train {

class StepGraphs {
 public:
  // From then on the thread's work is queued on a stream other than the device's default stream.
  StepGraphs(comm::DeviceBackend& device, std::vector<at::Tensor> trained);
  ~StepGraphs();

  enum class Way { kPassByPass, kRecord, kReplay };
  // Decides how to run a step with these micro-batches, whose losses are multiplied by `factor`; the
  // following calls refer to it. With kReplay the strategy is not called: the graphs write the gradients.
  [[nodiscard]] Way Begin(comm::Communicator& round, const std::vector<Slice>& pieces, double factor);

  // Runs the forward and backward pass of a batch without waiting for the device, and returns its loss.
  using Pass = std::function<Result<at::Tensor>(const data::Batch& batch)>;
  // Queues the pass over the next micro-batch, with the current state of the device's random generator.
  // Returns the loss, whose value is valid when the step is over. `pass` is called only to record it, with
  // the batch on the device. If it cannot be recorded, the step is lost (kInternal); if that happens
  // repeatedly, steps run pass by pass from then on, with a warning.
  [[nodiscard]] Result<at::Tensor> Take(const data::Batch& batch, const Pass& pass);
  // Called after the last micro-batch. Waits until the sums are known to be good on this machine. kAborted:
  // the round broke.
  [[nodiscard]] Result<void> Await();
  // On the device, where recorded passes read it.
  [[nodiscard]] const at::Tensor& factor() const { return factor_; }

  // Drops all graphs. Must be called before the round's group is closed, because closing waits for its
  // graphs.
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
  int failures_ = 0;  // consecutive recordings of this process that failed
  comm::Communicator* round_ = nullptr;
  RecordedStep* current_ = nullptr;
  std::size_t next_pass_ = 0;
};

}  // namespace lockstep::train

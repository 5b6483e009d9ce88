#pragma once
// The model's replicas on the devices of this process: one device, or with `strategy: dataparallel` all
// visible ones, as in torch.nn.DataParallel. A batch is scattered over the replicas, each computes its part
// of the forward pass in its own thread, and the losses are gathered on the first device, which has the
// state. Gradients are summed by parallel/replica_gradients.h.
//
// Devices may be of any type that LibTorch supports, and one device may have several replicas. Step thread;
// LibTorch's exceptions pass through.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/models/model.h"
#include "runtime/train/step/batch_math.h"

namespace lockstep::train {

struct Replica {
  // Where the model computes, each once. Samples are put on the first; several with `strategy: modelparallel`.
  std::vector<at::Device> devices;
  std::shared_ptr<Model> model;        // shared_ptr by torch::nn::Module's design
  std::vector<at::Tensor> parameters;  // including those that are not trained
  std::vector<at::Tensor> trained;
  std::vector<at::Tensor> buffers;
};

// The model must already be on the devices, of which one may be given several times.
[[nodiscard]] Replica ReplicaOf(std::shared_ptr<Model> model, std::span<const at::Device> devices);

// The part of a micro-batch that one replica computes.
struct Part {
  const Replica* replica;
  Slice positions;
  data::Batch batch;  // on the replica's first device
};

// `batch` holds the samples of `piece` without the corrupt ones; the positions of a part determine its random
// numbers. Part sizes differ by at most one sample, larger ones first. If there are fewer samples than
// replicas, the last replicas get none.
[[nodiscard]] std::vector<Part> Scatter(std::span<const Replica> replicas, const Slice& piece,
                                        const data::Batch& batch);

// Copies the running statistics of the first replica to the others. Each pass begins with them, and the
// values that the other replicas then compute are discarded.
void CopyBuffers(std::span<const Replica> replicas);

// Returns the sum on the device of the first part's loss; it is differentiable. Calls `loss_of` once per part,
// concurrently for replicas on different devices.
[[nodiscard]] at::Tensor SumOfLosses(std::span<const Part> parts,
                                     const std::function<at::Tensor(const Part&)>& loss_of);

}  // namespace lockstep::train

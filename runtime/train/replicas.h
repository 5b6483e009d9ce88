#pragma once
// The model on each device of the process: on one, or with `strategy: dataparallel` on all that it sees, as
// torch.nn.DataParallel has it. A batch is scattered over them, each takes its part forward in a thread of
// its own, and the losses are gathered on the first, which has the state. How gradients come together is
// parallel/replica_gradients.h's matter.
//
// Devices are LibTorch's, of any kind, and one may have several replicas. Step thread; LibTorch's exceptions
// pass through.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/models/model.h"
#include "runtime/train/batch_math.h"

namespace lockstep::train {

struct Replica {
  at::Device device;
  std::shared_ptr<Model> model;        // shared_ptr by torch::nn::Module's design
  std::vector<at::Tensor> parameters;  // also those that are not trained
  std::vector<at::Tensor> trained;
  std::vector<at::Tensor> buffers;
};

// Of a model that is on the device.
[[nodiscard]] Replica ReplicaOf(std::shared_ptr<Model> model, at::Device device);

// What one replica does of a micro-batch.
struct Part {
  const Replica* replica;
  Slice places;
  data::Batch batch;  // on the replica's device
};

// `batch` is of the places of `piece`, without those that are corrupt; a part's places are for its random
// numbers. Parts differ by one sample at most, the larger ones come first; where
// there are fewer samples than replicas, the last ones get none.
[[nodiscard]] std::vector<Part> Scatter(std::span<const Replica> replicas, const Slice& piece,
                                        const data::Batch& batch);

// Running statistics are those of the first: the others begin each pass with them, and what they then come to
// is dropped.
void CopyBuffers(std::span<const Replica> replicas);

// On the first part's device, differentiable. `loss_of` is called once for each part, of replicas on
// different devices at once.
[[nodiscard]] at::Tensor SumOfLosses(std::span<const Part> parts,
                                     const std::function<at::Tensor(const Part&)>& loss_of);

}  // namespace lockstep::train

#include "runtime/train/replicated/replicas.h"

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <unordered_map>
#include <utility>

#include "runtime/common/base/mutex.h"

namespace lockstep::train {

Replica ReplicaOf(std::shared_ptr<Model> model, std::span<const at::Device> devices) {
  Replica replica{
      .devices = {}, .model = model, .parameters = model->parameters(), .buffers = model->buffers()};
  for (const at::Device device : devices) {
    const bool is_new =
        std::find(replica.devices.begin(), replica.devices.end(), device) == replica.devices.end();
    if (is_new) replica.devices.push_back(device);
  }
  for (const at::Tensor& parameter : replica.parameters) {
    if (parameter.requires_grad()) replica.trained.push_back(parameter);
  }
  return replica;
}

std::vector<Part> Scatter(std::span<const Replica> replicas, const Slice& piece, const data::Batch& batch) {
  std::vector<Part> parts;
  const int64_t rows = batch.inputs.size(0);  // fewer than positions if corrupt records are left out
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const Slice mine = SliceOf(rows, static_cast<int>(i), static_cast<int>(replicas.size()));
    if (mine.size() == 0) break;
    const bool is_whole = mine.size() == rows;
    const data::Batch share = is_whole ? batch
                                       : data::Batch{batch.inputs.narrow(0, mine.begin, mine.size()),
                                                     batch.targets.narrow(0, mine.begin, mine.size())};
    parts.push_back({&replicas[i],
                     {piece.begin + mine.begin, piece.begin + mine.end},
                     share.To(replicas[i].devices.front())});
  }
  return parts;
}

void CopyBuffers(std::span<const Replica> replicas) {
  const at::NoGradGuard no_grad;
  for (const Replica& replica : replicas.subspan(1)) {
    for (std::size_t i = 0; i < replica.buffers.size(); ++i)
      replica.buffers[i].copy_(replicas.front().buffers[i], /*non_blocking=*/true);
  }
}

at::Tensor SumOfLosses(std::span<const Part> parts, const std::function<at::Tensor(const Part&)>& loss_of) {
  // A device has a single random generator, so its replicas must use it one after another.
  std::unordered_map<at::Device, Mutex> turns;
  for (const Part& part : parts) turns[part.replica->devices.front()];
  std::vector<at::Tensor> losses(parts.size());
  std::vector<std::exception_ptr> thrown(parts.size());
  const auto compute = [&](std::size_t i) {
    try {
      const at::Device device = parts[i].replica->devices.front();
      const c10::DeviceGuard on_device(device);
      const MutexLock turn(turns.at(device));
      losses[i] = loss_of(parts[i]);
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  };
  {
    const at::ThreadLocalState ours;  // includes the state of a running profiler
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < parts.size(); ++i) {
      others.emplace_back([&, i] {
        const at::ThreadLocalStateGuard as_ours(ours);
        compute(i);
      });
    }
    compute(0);
  }
  for (const std::exception_ptr& problem : thrown) {
    if (problem) std::rethrow_exception(problem);
  }
  const at::AutoGradMode with_gradients(true);
  at::Tensor sum = losses.front();
  for (std::size_t i = 1; i < losses.size(); ++i) sum = sum + losses[i].to(sum.device());
  return sum;
}

}  // namespace lockstep::train

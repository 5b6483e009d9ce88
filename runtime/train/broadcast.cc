#include "runtime/train/broadcast.h"

#include <ATen/ATen.h>

#include <map>
#include <tuple>

#include "runtime/comm/torch_error.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// Of one root, of one type and on one device.
struct Group {
  std::vector<const FromRank*> tensors{};
  at::Tensor flat{};
};
using Groups = std::map<std::tuple<int, at::DeviceType, at::ScalarType>, Group>;

Groups GroupsOf(const std::vector<FromRank>& tensors) {
  Groups groups;
  for (const FromRank& tensor : tensors)
    groups[{tensor.root, tensor.target.device().type(), tensor.target.scalar_type()}].tensors.push_back(
        &tensor);
  return groups;
}

void Pack(Group& group) {
  std::vector<at::Tensor> flat;
  for (const FromRank* tensor : group.tensors)
    flat.push_back(tensor->source.reshape(-1).to(tensor->target.device()));
  group.flat = at::cat(flat);
}

void MakeRoom(Group& group) {
  int64_t size = 0;
  for (const FromRank* tensor : group.tensors) size += tensor->target.numel();
  group.flat = at::empty({size}, group.tensors.front()->target.options().requires_grad(false));
}

void Unpack(const Group& group, bool is_root) {
  int64_t begin = 0;
  for (const FromRank* tensor : group.tensors) {
    const at::Tensor& target = tensor->target;
    if (!is_root || !tensor->source.is_same(target))
      target.copy_(group.flat.narrow(0, begin, target.numel()).view(target.sizes()));
    begin += target.numel();
  }
}

}  // namespace

Result<void> BroadcastTensors(comm::Communicator& communicator, const std::vector<FromRank>& tensors) {
  const at::NoGradGuard no_grad;
  if (communicator.world() == 1) {
    return CatchTorch(ErrorCode::kInternal, "copying the state", [&] {
      for (const FromRank& tensor : tensors) tensor.target.copy_(tensor.source);
    });
  }
  Groups groups = GroupsOf(tensors);
  for (auto& [key, group] : groups) {
    const int root = std::get<0>(key);
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing the state", [&, &group = group] {
      communicator.rank() == root ? Pack(group) : MakeRoom(group);
    }));
    LOCKSTEP_TRY(communicator.Broadcast({group.flat}, root));
  }
  return CatchTorch(ErrorCode::kInternal, "unpacking the state", [&] {
    for (const auto& [key, group] : groups) Unpack(group, communicator.rank() == std::get<0>(key));
  });
}

}  // namespace lockstep::train

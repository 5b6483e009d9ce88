#include "runtime/train/state/broadcast.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/comm/torch_error.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// Tensors of one root, one type and one device; their elements are numbered consecutively.
struct Group {
  std::vector<const FromRank*> tensors{};
  int64_t elements = 0;
};
using Groups = std::map<std::tuple<int, at::DeviceType, at::ScalarType>, Group>;

Groups GroupsOf(const std::vector<FromRank>& tensors) {
  Groups groups;
  for (const FromRank& tensor : tensors) {
    const at::Tensor& target = tensor.target;
    Group& group = groups[{tensor.root, target.device().type(), target.scalar_type()}];
    group.tensors.push_back(&tensor);
    group.elements += target.numel();
  }
  return groups;
}

// Elements of a group, starting at `begin`.
struct Chunk {
  const Group* group;
  int64_t begin;
  at::Tensor flat{};
};

// Calls `use` for each tensor of the chunk, with its first element in the chunk and its elements in the
// chunk.
template <typename Use>
void ForEachPiece(const Chunk& chunk, const Use& use) {
  const int64_t end = chunk.begin + chunk.flat.numel();
  int64_t first = 0;  // of the tensor, within the group
  for (const FromRank* tensor : chunk.group->tensors) {
    const int64_t last = first + tensor->target.numel();
    const int64_t from = std::max(first, chunk.begin);
    const int64_t to = std::min(last, end);
    if (from < to) use(*tensor, from - first, chunk.flat.narrow(0, from - chunk.begin, to - from));
    first = last;
  }
}

void Pack(const Chunk& chunk) {
  ForEachPiece(chunk, [](const FromRank& tensor, int64_t first, const at::Tensor& piece) {
    piece.copy_(tensor.source.reshape(-1).narrow(0, first, piece.numel()));
  });
}

void Unpack(const Chunk& chunk, bool is_root) {
  ForEachPiece(chunk, [&](const FromRank& tensor, int64_t first, const at::Tensor& piece) {
    if (!is_root || !tensor.source.is_same(tensor.target))
      tensor.target.view(-1).narrow(0, first, piece.numel()).copy_(piece);
  });
}

class Broadcasting {
 public:
  Broadcasting(comm::Communicator& communicator, Receiving receiving)
      : communicator_(communicator), receiving_(receiving) {}

  Result<void> Move(const Group& group, int root) {
    const at::TensorOptions options = group.tensors.front()->target.options().requires_grad(false);
    const int64_t most = kBroadcastChunkBytes / static_cast<int64_t>(options.dtype().itemsize());
    const bool is_root = communicator_.rank() == root;
    at::Tensor room;
    for (int64_t begin = 0; begin < group.elements; begin += most) {
      const int64_t size = std::min(most, group.elements - begin);
      Chunk chunk{&group, begin};
      LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "packing the state", [&] {
        if (!room.defined()) room = at::empty({size}, options);
        chunk.flat = room.narrow(0, 0, size);
        if (is_root) Pack(chunk);
      }));
      LOCKSTEP_TRY(communicator_.Broadcast({chunk.flat}, root));
      LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "unpacking the state", [&] {
        if (receiving_ == Receiving::kInPlace) Unpack(chunk, is_root);
        if (receiving_ != Receiving::kStaged) return;
        chunk.flat = chunk.flat.to(at::kCPU);
        staged_.push_back(std::move(chunk));
        room.reset();  // on the CPU the memory is kept for the copy
      }));
    }
    return {};
  }

  Result<void> WriteStaged() {
    return CatchTorch(ErrorCode::kInternal, "unpacking the state", [this] {
      for (const Chunk& chunk : staged_) Unpack(chunk, /*is_root=*/false);
    });
  }

 private:
  comm::Communicator& communicator_;
  const Receiving receiving_;
  std::vector<Chunk> staged_;
};

}  // namespace

Result<void> BroadcastTensors(comm::Communicator& communicator, const std::vector<FromRank>& tensors,
                              Receiving receiving, const std::function<void()>& before_writing) {
  const at::NoGradGuard no_grad;
  if (receiving == Receiving::kInPlace) before_writing();
  if (communicator.world() == 1) {
    return CatchTorch(ErrorCode::kInternal, "copying the state", [&] {
      for (const FromRank& tensor : tensors) {
        if (!tensor.source.is_same(tensor.target)) tensor.target.copy_(tensor.source);
      }
    });
  }
  const Groups groups = GroupsOf(tensors);
  Broadcasting broadcasting(communicator, receiving);
  for (const auto& [key, group] : groups) LOCKSTEP_TRY(broadcasting.Move(group, std::get<0>(key)));
  if (receiving != Receiving::kStaged) return {};
  before_writing();
  return broadcasting.WriteStaged();
}

}  // namespace lockstep::train

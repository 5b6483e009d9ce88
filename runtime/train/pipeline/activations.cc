#include "runtime/train/pipeline/activations.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "runtime/comm/torch_error.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;

// Type, number of dimensions, dimensions.
constexpr int64_t kFirst = 2;
constexpr int64_t kMostDimensions = 8;
constexpr int64_t kNone = -1;

at::Tensor EmptyHeader() { return at::zeros({kFirst + kMostDimensions}, at::kLong); }

}  // namespace

Result<void> SendActivation(comm::Communicator& communicator, const at::Tensor& tensor, int peer) {
  at::Tensor header;
  at::Tensor sent;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "sending an activation", [&] {
    TORCH_CHECK(tensor.dim() <= kMostDimensions, "a layer gives a tensor of ", tensor.dim(), " dimensions; ",
                kMostDimensions, " are possible");
    header = EmptyHeader();
    auto* numbers = header.data_ptr<int64_t>();
    numbers[0] = static_cast<int64_t>(tensor.scalar_type());
    numbers[1] = tensor.dim();
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), numbers + kFirst);
    sent = tensor.detach().contiguous();
  }));
  LOCKSTEP_TRY(communicator.Send(header, peer));
  return communicator.Send(sent, peer);
}

Result<void> SendNoActivation(comm::Communicator& communicator, int peer) {
  at::Tensor header = EmptyHeader();
  header.data_ptr<int64_t>()[1] = kNone;
  return communicator.Send(header, peer);
}

Result<at::Tensor> ReceiveActivation(comm::Communicator& communicator, at::Device device, int peer) {
  at::Tensor header = EmptyHeader();
  LOCKSTEP_TRY(communicator.Receive(header, peer));
  const auto* numbers = header.const_data_ptr<int64_t>();
  if (numbers[1] == kNone) return at::Tensor();
  LOCKSTEP_TRY(at::Tensor tensor, CatchTorch(ErrorCode::kInternal, "receiving an activation", [&] {
                 const at::IntArrayRef sizes(numbers + kFirst, static_cast<std::size_t>(numbers[1]));
                 return at::empty(sizes,
                                  at::TensorOptions(device).dtype(static_cast<at::ScalarType>(numbers[0])));
               }));
  LOCKSTEP_TRY(communicator.Receive(tensor, peer));
  return tensor;
}

}  // namespace lockstep::train

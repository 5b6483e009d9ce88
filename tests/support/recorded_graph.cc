#include "tests/support/recorded_graph.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <stdexcept>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace lockstep::testing {
namespace {

// LibTorch has this key for what others bring, below autograd and above all kernels.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

struct Call {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;
  std::vector<c10::IValue> results;
};

thread_local std::vector<Call>* recording = nullptr;

void KeepCall(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (op.schema().name() == "aten::_local_scalar_dense")
    throw std::runtime_error("a value was read while its operators were being recorded");
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  Call call{.op = op, .arguments = {stack->end() - count, stack->end()}, .results = {}};
  const c10::impl::ExcludeDispatchKeyGuard not_what_it_calls(kKey);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
  call.results = *stack;
  if (recording != nullptr) recording->push_back(std::move(call));
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&KeepCall>());
}

// `result` was recorded, and what followed reads it.
void Renew(const c10::IValue& result, const c10::IValue& again) {
  if (result.isTensor() && result.toTensor().defined()) {
    if (!again.toTensor().is_alias_of(result.toTensor())) result.toTensor().copy_(again.toTensor());
  } else if (result.isTensorList()) {
    const auto tensors = result.toTensorVector();
    const auto tensors_again = again.toTensorVector();
    for (std::size_t i = 0; i < tensors.size(); ++i) Renew(tensors[i], tensors_again[i]);
  } else if (result.isCustomClass() && result.type()->str().find("Work") != std::string::npos) {
    again.toCustomClass<c10d::Work>()->wait();
  }
}

class RecordedGraph final : public comm::DeviceGraph {
 public:
  void Record(const std::function<void()>& work) override {
    const c10::impl::IncludeDispatchKeyGuard with_key(kKey);
    recording = &calls_;
    try {
      work();
    } catch (...) {
      recording = nullptr;
      throw;
    }
    recording = nullptr;
  }

  // The first time it is done already: nothing can be recorded here without being done.
  void Replay() override {
    if (!std::exchange(was_replayed_, true)) return;
    const c10::impl::ExcludeDispatchKeyGuard without_autograd(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    for (const Call& call : calls_) {
      torch::jit::Stack stack = call.arguments;
      call.op.callBoxed(stack);
      for (std::size_t i = 0; i < stack.size(); ++i) Renew(call.results[i], stack[i]);
    }
  }

 private:
  std::vector<Call> calls_;
  bool was_replayed_ = false;
};

}  // namespace

std::unique_ptr<comm::DeviceGraph> NewRecordedGraph() { return std::make_unique<RecordedGraph>(); }

}  // namespace lockstep::testing

#include "runtime/cuda/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>

#include <exception>

namespace lockstep::cuda {
namespace {

class CudaGraph final : public comm::DeviceGraph {
 public:
  explicit CudaGraph(c10::MempoolId_t pool) : pool_(pool) {}

  void Record(const std::function<void()>& work) override {
    // Captures this thread only: other threads store checkpoints and pin batches meanwhile.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      EndAfterAnError();
      throw;
    }
    graph_.capture_end();
  }

  void Replay() override { graph_.replay(); }

 private:
  // The original error is more informative than the one from ending the failed recording.
  void EndAfterAnError() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
    }
  }

  const c10::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<comm::DeviceGraph> NewCudaGraph(c10::MempoolId_t pool) {
  return std::make_unique<CudaGraph>(pool);
}

}  // namespace lockstep::cuda

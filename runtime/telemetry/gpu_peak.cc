#include "runtime/telemetry/gpu_peak.h"

#include <array>

namespace lockstep::telemetry {
namespace {

struct Peak {
  std::string_view name;
  double flops;  // of bf16 and of fp16, which are equal on all of these
};

// From NVIDIA's datasheets: "A100 Tensor Core GPU" (312 TFLOPS), "H100 Tensor Core GPU" (SXM 1,979, PCIe
// 1,513, NVL 1,671) and "H200 Tensor Core GPU" (SXM 1,979, NVL 1,671). The latter two assume sparse matrices:
// the dense value is half of it. TF32 is half of the bf16 value. Names are complete, because the name of a
// slice or of a variant with other clocks begins with the same words.
constexpr std::array kPeaks = {
    Peak{"NVIDIA A100-SXM4-40GB", 312e12},   Peak{"NVIDIA A100-SXM4-80GB", 312e12},
    Peak{"NVIDIA A100-PCIE-40GB", 312e12},   Peak{"NVIDIA A100 80GB PCIe", 312e12},
    Peak{"NVIDIA H100 80GB HBM3", 989.5e12}, Peak{"NVIDIA H100 PCIe", 756.5e12},
    Peak{"NVIDIA H100 NVL", 835.5e12},       Peak{"NVIDIA H200", 989.5e12},
    Peak{"NVIDIA H200 NVL", 835.5e12},
};

}  // namespace

std::optional<double> PeakFlops(std::string_view name, std::string_view precision) {
  const bool is_tf32 = precision == "tf32";
  if (!is_tf32 && precision != "bf16" && precision != "fp16") return std::nullopt;
  for (const Peak& peak : kPeaks) {
    if (peak.name == name) return is_tf32 ? peak.flops / 2 : peak.flops;
  }
  return std::nullopt;
}

}  // namespace lockstep::telemetry
